//! A simulated run from its start to its end.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use txn_core::store::{Key, Store};
use txn_core::{Config, Domain, Error, Raw, TransactionOutcome, record::State};
use txn_protocol::rule::Rules;
use txn_sim::{CountingStore, FaultStore};

use crate::actor::{Actor, Bomb};
use crate::counts::RunResult;
use crate::coverage;
use crate::disks;
use crate::history::{Content, Doc, Fate, History, Operation, World};
use crate::invariants;
use crate::ledger::{CleanUp, Ledger};
use crate::meddle::Meddler;
use crate::past;
use crate::scenario::{
    ACCOUNTS, ANNEXED, Annex, Clocks, JANITOR_INTERVAL, OPENING, SHEETS, Scenario, TOKENS,
    Troubles, until_a_rush,
};
use crate::watch::{LongLock, Watch};
use crate::witness::{Told, Witness};
use txn_sim::machine::{
    ClockOf, EPOCH, EntropyOf, Log, Process, Recording, StoreOf, in_virtual_time, is_planned,
};
use txn_sim::server::{FIRST_TRY, Manners, REPLICATION, Server};

/// The maximum virtual time with faults.
const TROUBLE: Duration = Duration::from_secs(60);
/// The virtual time in which all work must end after the faults.
const PEACE: Duration = Duration::from_secs(300);
/// The deadline of operations that must succeed, longer than all other deadlines.
const PATIENT: Duration = Duration::from_secs(3_600);

/// Runs a seed in virtual time. The same seed gives the same run.
#[must_use]
pub fn run(seed: u64, troubles: Troubles) -> RunResult {
    run_with(seed, troubles, &Rules::all_counted())
}

/// Runs a seed as [`run`] does, under these rules.
#[must_use]
pub fn run_with(seed: u64, troubles: Troubles, rules: &Rules) -> RunResult {
    run_recorded(seed, troubles, rules, Recording::Nothing).0
}

/// Runs a seed twice, and compares the digests.
///
/// A digest covers all events, store operations and actions.
///
/// A difference is a violation. The violation names the first line that differs in two further
/// runs.
#[must_use]
pub fn run_twice(seed: u64, troubles: Troubles) -> RunResult {
    let once = |recording| run_recorded(seed, troubles, &Rules::all(), recording);
    let (mut result, _) = once(Recording::Digest);
    if result.fingerprint != once(Recording::Digest).0.fingerprint {
        let [first, second] = [once(Recording::Lines).1, once(Recording::Lines).1];
        let at = first.iter().zip(&second).position(|(one, other)| one != other);
        let line = |lines: &[String]| at.and_then(|at| lines.get(at).cloned()).unwrap_or_default();
        let message =
            format!("two runs differ, first at {:?} and {:?}", line(&first), line(&second));
        result.violations.push(message);
    }
    result
}

/// Runs a seed as [`run_with`] does, and returns a log.
///
/// With [`Recording::Lines`] the log has one line for each event of the engine, each operation of
/// the store and each action of an actor.
///
/// # Panics
/// If no runtime can be made.
#[must_use]
pub fn run_recorded(
    seed: u64,
    troubles: Troubles,
    rules: &Rules,
    recording: Recording,
) -> (RunResult, Vec<String>) {
    let scenario = Scenario::of(seed, troubles);
    let run = async { Simulation::new(scenario, rules.clone(), recording).run().await };
    let ((mut result, log), marks) = coverage::with_marks(|| in_virtual_time(run));
    (result.counts.asked, result.counts.marks) = (coverage::asked(rules), marks);
    (result, log)
}

/// A process and its actors.
struct Running {
    process: Arc<Process>,
    domain: Domain,
    actors: Vec<JoinHandle<()>>,
}

/// Shuts a domain down, even if its process was stopped.
///
/// The process was stopped because it looped.
async fn shut_down(domain: &Domain) {
    let _ = tokio::time::timeout(PEACE + JANITOR_INTERVAL, domain.shutdown(PEACE)).await;
}

struct Simulation {
    scenario: Scenario,
    /// The rules of every process.
    rules: Rules,
    origin: Instant,
    server: Arc<Server>,
    faults: Arc<FaultStore>,
    history: History,
    told: Arc<Told>,
    log: Arc<Log>,
    violations: Vec<String>,
    started: u64,
    /// Days by which the clock of a new process is ahead.
    days: i64,
    /// Every process of the run.
    processes: Mutex<Vec<Arc<Process>>>,
    meddler: Meddler,
    /// The start of the history, if the collection keeps one.
    past: Option<Duration>,
    long_locks: Vec<LongLock>,
    clean_up: CleanUp,
}

/// The faults that a run counts when they happen.
const KINDS: [&str; 6] = [
    "callers hung",
    "callers panicked",
    "clocks jumped",
    "observers panicked",
    "processes killed",
    "processes paused",
];

const DAY_MILLIS: i64 = 24 * 3_600 * 1_000;
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(400 * 24 * 3_600);

impl Simulation {
    fn new(scenario: Scenario, rules: Rules, recording: Recording) -> Self {
        let server = Server::new(scenario.seed, Manners::default());
        let faults = Arc::new(FaultStore::new(server.clone(), scenario.faults));
        faults.set_enabled(false);
        if scenario.server_time {
            server.tell_time(EPOCH);
        }
        let told = Arc::new(Told::default());
        let (log, origin) = (Arc::new(Log::new(recording)), Instant::now());
        let meddler = Meddler::new(&server, &scenario);
        Self {
            scenario,
            rules,
            origin,
            server,
            faults,
            history: History::default(),
            told,
            log,
            violations: Vec::new(),
            started: 0,
            days: 0,
            processes: Mutex::default(),
            meddler,
            past: None,
            long_locks: Vec::new(),
            clean_up: CleanUp::default(),
        }
    }

    fn process(&mut self, role: &str, speed: f64, off: i64) -> Arc<Process> {
        self.process_on(self.faults.clone(), role, speed, off)
    }

    fn process_on(
        &mut self,
        store: Arc<dyn Store>,
        role: &str,
        speed: f64,
        off: i64,
    ) -> Arc<Process> {
        self.started += 1;
        let name = format!("{role} {}", self.started);
        let seed = self.scenario.seed ^ (self.started << 32);
        Process::new(name, store, self.log.clone(), seed, speed, off)
    }

    async fn domain(&self, process: &Arc<Process>, janitor: bool) -> Result<Domain, Error> {
        let (name, told, log) = (process.name().to_owned(), self.told.clone(), self.log.clone());
        self.processes.lock().push(process.clone());
        let config = Config::default()
            .with_clock(Arc::new(ClockOf(process.clone())))
            .with_entropy(Arc::new(EntropyOf(process.clone())))
            .with_process_name(process.name().to_owned())
            .with_observer(Some(Arc::new(Witness { name, told, log })))
            .with_max_drift(self.scenario.max_drift())
            .with_retention_days(1)
            .with_request_batching(Some(self.scenario.request_batching))
            .with_group_commit(Some(self.scenario.groups))
            .with_janitor_interval(janitor.then_some(JANITOR_INTERVAL))
            .with_rules(self.rules.clone());
        Domain::open_or_create(Arc::new(StoreOf(process.clone())), "world", config).await
    }

    async fn run(mut self) -> (RunResult, Vec<String>) {
        let prelude = self.prelude().await;
        let mut settled = BTreeMap::new();
        let mut finals = BTreeMap::new();
        match prelude {
            Err(error) => self.violations.push(format!("the environment cannot be made: {error}")),
            Ok(()) => {
                let running = self.trouble().await;
                self.peace(running).await;
                // Requests of dead processes are still carried out.
                tokio::time::sleep(2 * REPLICATION).await;
                self.told.rash.lock().take();
                match tokio::time::timeout(2 * PEACE, self.last_look()).await {
                    Ok(Ok(found)) => (settled, finals) = found,
                    Ok(Err(error)) => self.violations.push(format!("no final read: {error}")),
                    Err(_) => self.violations.push("no final read: timed out".to_owned()),
                }
            }
        }
        self.result(settled, finals)
    }

    /// Writes the documents that exist from the start.
    async fn prelude(&mut self) -> Result<(), Error> {
        let process = self.process("founder", 1.0, 0);
        let domain = self.domain(&process, false).await?;
        let world: World = domain.create_collection("world", None).await?;
        if self.scenario.past {
            domain.history().enable(&world, FOR_EVER).await?;
            self.past = Some(domain.config().clock().wall());
        }
        domain
            .transact(async |tx| {
                for n in 0..ACCOUNTS {
                    let content = Content { balance: OPENING, ..Content::default() };
                    tx.put(&world, Doc::Account(n).id(), &content)?;
                }
                tx.put(&world, Doc::Token(0).id(), &Content::default())?;
                for n in 0..2 {
                    let content = Content { on: true, ..Content::default() };
                    tx.put(&world, Doc::OnCall(n).id(), &content)?;
                }
                let sheets = if self.scenario.groups { SHEETS } else { 0 };
                (0..sheets)
                    .try_for_each(|n| tx.put(&world, Doc::Sheet(n).id(), &Content::default()))
            })
            .await?;
        if self.scenario.annex != Annex::None {
            let annex: World = domain.create_collection("annex", None).await?;
            domain
                .transact(async |tx| {
                    (0..ANNEXED)
                        .try_for_each(|n| tx.put(&annex, Doc::Annex(n).id(), &Content::default()))
                })
                .await?;
        }
        domain.shutdown(PEACE).await;
        if self.scenario.panics {
            // No fault happens during the preparation.
            *self.told.rash.lock() = Some(self.scenario.trouble.fork());
        }
        self.server.set_manners(self.scenario.manners);
        self.faults.set_enabled(true);
        Ok(())
    }

    /// Starts a process with its actors. `None` if the process did not start.
    async fn start(&mut self, operations: usize) -> Option<Running> {
        let mut dice = self.scenario.dice.fork();
        let (speed, off) = match self.scenario.clocks {
            Clocks::Tame => {
                let off = self.scenario.offset();
                (0.99 + 0.02 * dice.f64(), dice.i64(-off..=off))
            }
            Clocks::Wild => (0.5 + 1.5 * dice.f64(), dice.i64(-9_000_000..=9_000_000)),
            Clocks::Days => (1.0, self.days * DAY_MILLIS + dice.i64(-5_000..=5_000)),
        };
        let process = self.process("process", speed, off);
        if self.scenario.kills && dice.u8(..3) == 0 {
            process.kill_after(dice.u64(1..400));
        }
        let scenario = &self.scenario;
        let opened = async {
            let domain = self.domain(&process, true).await?;
            let world: World = domain.collection("world").await?;
            let bombs = match scenario.panics {
                true => Some(domain.collection::<Bomb>("world").await?),
                false => None,
            };
            // The index is lost or out of reach for now: the process works without it.
            let annex: Option<World> = match scenario.annex {
                Annex::None => None,
                _ => domain.collection("annex").await.ok(),
            };
            Ok::<_, Error>((domain, world, bombs, annex))
        };
        let opened = tokio::time::timeout(TROUBLE, AssertUnwindSafe(opened).catch_unwind());
        let (domain, world, bombs, annex) = match opened.await.ok()? {
            Ok(opened) => opened.ok()?,
            Err(panic) if is_planned(&*panic) => return None,
            Err(panic) => resume_unwind(panic),
        };
        process.panic_at(self.scenario.store_panics);
        let actors = (0..self.scenario.actors).map(|_| {
            let actor = Actor {
                process: process.clone(),
                domain: domain.clone(),
                world: world.clone(),
                history: self.history.clone(),
                origin: self.origin,
                lock_reads: self.scenario.crashes,
                annex: annex.clone(),
                bombs: bombs.clone(),
                told: self.told.clone(),
                hangs: self.scenario.hangs,
                groups: self.scenario.groups,
                strays: self.meddler.strays.clone(),
                calm: self.scenario.calm,
                barriers: self.scenario.barriers.then(|| self.server.clone()),
                past: self.past,
            };
            let (mut dice, calm) = (dice.fork(), self.scenario.calm);
            tokio::spawn(async move {
                for _ in 0..operations {
                    let patient = dice.u8(..6) == 0;
                    let deadline =
                        if patient { PATIENT } else { Duration::from_secs(dice.u64(5..40)) };
                    actor.run_one(&mut dice, deadline).await;
                    let pause = match calm {
                        true => until_a_rush(actor.origin.elapsed(), dice.f64()),
                        false => Duration::from_millis(dice.u64(..200)),
                    };
                    tokio::time::sleep(pause).await;
                }
            })
        });
        let actors = actors.collect();
        Some(Running { process, domain, actors })
    }

    /// Runs all processes under faults.
    async fn trouble(&mut self) -> Vec<Running> {
        let end = Instant::now() + TROUBLE;
        let mut running = Vec::new();
        for _ in 0..self.scenario.processes {
            running.extend(self.start(self.scenario.operations).await);
        }
        let mut restarts = 3;
        let mut dice = self.scenario.dice.fork();
        while Instant::now() < end {
            let all_done = running
                .iter()
                .all(|r| r.process.is_killed() || r.actors.iter().all(JoinHandle::is_finished));
            if all_done && restarts == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(dice.u64(20..1_500))).await;
            if running.is_empty() {
                break;
            }
            let pick = dice.usize(..running.len());
            self.disturb(&running[pick].process, &mut dice);
            self.meddler.meddle().await;
            let dead = running.iter().any(|r| r.process.is_killed());
            if restarts > 0 && (dead || all_done) {
                restarts -= 1;
                running.extend(self.start(self.scenario.operations.div_ceil(2)).await);
            }
        }
        running
    }

    /// Causes a fault of a process or of the server.
    fn disturb(&mut self, process: &Process, dice: &mut fastrand::Rng) {
        let scenario = &self.scenario;
        let mut counts = self.told.counts.lock();
        if scenario.crashes && dice.u8(..3) == 0 {
            self.server.crash();
        }
        if scenario.kills && dice.u8(..6) == 0 {
            process.kill_after(dice.u64(1..60));
        }
        if scenario.pauses && dice.u8(..4) == 0 {
            counts.fault("processes paused", 1);
            process.pause_after(dice.u64(1..60), Duration::from_millis(dice.u64(100..20_000)));
        }
        let jump = match scenario.clocks {
            Clocks::Tame if dice.u8(..6) == 0 => {
                let off = scenario.offset();
                dice.i64(-off..=off) - process.off()
            }
            // The clock jumps stay within the allowed drift, because history has no guarantees
            // beyond that.
            Clocks::Wild if dice.u8(..3) == 0 => {
                let off = process.off() + dice.i64(-9_000_000..=9_000_000);
                off.clamp(-DAY_MILLIS * 9 / 10, DAY_MILLIS * 9 / 10) - process.off()
            }
            Clocks::Days if dice.u8(..3) == 0 => {
                self.days = (self.days + dice.i64(0..=3)).min(9);
                self.days * DAY_MILLIS - process.off()
            }
            _ => 0,
        };
        if jump != 0 {
            counts.fault("clocks jumped", 1);
            process.jump(jump);
        }
    }

    /// Ends all faults, and waits until all work has ended.
    async fn peace(&mut self, running: Vec<Running>) {
        self.faults.set_enabled(false);
        self.server.set_manners(Manners::default());
        for one in &running {
            one.process.leave_alone();
        }
        self.told.calm.store(true, Ordering::Relaxed);
        self.told.rash.lock().take();
        self.meddler.ends().await;
        self.faults.settle().await;
        if self.scenario.manners.sent_again + self.scenario.manners.sent_and_missed > 0.0 {
            tokio::time::sleep(FIRST_TRY).await;
        }
        // From now on each live process reaches a server.
        let watch = Watch::begin(&self.server);
        let dropped = self.told.counts.lock().drops;
        let counting = Arc::new(CountingStore::new(self.faults.clone()));
        let caretaker = self.process_on(counting.clone(), "caretaker", 1.0, self.days * DAY_MILLIS);
        let began = Instant::now();
        let caretaker = tokio::time::timeout(PEACE, self.domain(&caretaker, true)).await;
        if self.meddler.made_again.is_some()
            && let Ok(Ok(caretaker)) = &caretaker
            && let Err(error) = caretaker.collection::<Raw>("annex").await
        {
            self.violations.push(format!("the caretaker cannot open the new annex: {error}"));
        }
        for mut one in running {
            if one.process.is_killed() {
                self.told.counts.lock().fault("processes killed", 1);
                continue;
            }
            let ended = async {
                for actor in &mut one.actors {
                    if let Err(error) = actor.await {
                        self.violations.push(format!("an actor failed: {error}"));
                    }
                }
            };
            if tokio::time::timeout(PEACE, ended).await.is_err() {
                let name = one.process.name();
                self.violations.push(format!("liveness: transactions of {name} do not end"));
            }
            let before = Instant::now();
            shut_down(&one.domain).await;
            if before.elapsed() >= PEACE {
                let name = one.process.name();
                self.violations.push(format!("liveness: the shutdown of {name} does not end"));
            }
        }
        let longest = self.scenario.longest_lock();
        while !watch.is_free() && began.elapsed() < 2 * longest {
            tokio::time::sleep(JANITOR_INTERVAL).await;
        }
        match caretaker {
            Ok(Ok(caretaker)) => shut_down(&caretaker).await,
            Ok(Err(error)) => self.violations.push(format!("no caretaker: {error}")),
            Err(_) => self.violations.push("no caretaker: no domain is opened".to_owned()),
        }
        self.long_locks = watch.longer_than(longest);
        self.clean_up = CleanUp {
            found: watch.work(),
            passes: began.elapsed().div_duration_f64(JANITOR_INTERVAL) as u64,
            dropped: self.told.counts.lock().drops - dropped,
            written: counting.counts().documents_written,
        };
    }

    /// Whether the document is in the lost index.
    ///
    /// Its lock cannot be removed.
    fn is_stuck(&self, key: &Key) -> bool {
        self.meddler.lost && &*key.collection == "annex"
    }

    /// Whether the operation failed because of an index that was made again.
    ///
    /// The caller found a lock in the old index, and received a report of the loss.
    fn is_told_of_loss(&self, operation: &Operation) -> bool {
        let fate = &operation.fate;
        self.meddler.made_again.is_some()
            && matches!(fate, Fate::Aborted(why) if why.starts_with("Damaged: annex/"))
    }

    /// Cleans up and reads all documents with a new process.
    async fn last_look(&mut self) -> Result<(BTreeMap<u64, bool>, BTreeMap<Doc, Content>), Error> {
        let off = (self.days + 1) * DAY_MILLIS / if self.days == 0 { DAY_MILLIS } else { 1 };
        let process = self.process("witness", 1.0, off);
        let domain = self.domain(&process, false).await?;
        let world: World = domain.collection("world").await?;
        let mut report = domain.admin().janitor_pass().await?;
        for _ in 0..5 {
            if report.is_clean() {
                break;
            }
            report = domain.admin().janitor_pass().await?;
        }
        let lost = self.meddler.lost;
        report.damaged.retain(|(key, _)| !self.is_stuck(key));
        report.locked.retain(|(key, _)| !self.is_stuck(key));
        // A committed write into the lost index stays open.
        report.open.retain(|(_, state)| !lost || *state != State::Committed);
        if !report.is_clean() {
            self.violations.push(format!("left over: {report:?}"));
        }
        let disks = disks::left_over(&self.server.documents(), lost);
        self.violations.extend(disks);
        let operations = self.history.operations();
        let mut docs: Vec<Doc> =
            operations.iter().flat_map(|operation| operation.writes.keys()).copied().collect();
        docs.extend((0..ACCOUNTS).map(Doc::Account));
        docs.extend((0..2).map(Doc::OnCall));
        docs.extend((0..TOKENS).map(Doc::Token).chain((0..SHEETS).map(Doc::Sheet)));
        docs.retain(|doc| !matches!(doc, Doc::Annex(_)));
        let annex: Option<World> = match self.scenario.annex {
            Annex::ComesAndGoes => Some(domain.collection("annex").await?),
            Annex::None | Annex::Lost | Annex::MadeAgain => None,
        };
        if annex.is_some() {
            docs.extend((0..ANNEXED).map(Doc::Annex));
        }
        let mut finals = BTreeMap::new();
        for doc in docs {
            let collection = annex.as_ref().filter(|_| matches!(doc, Doc::Annex(_)));
            let collection = collection.unwrap_or(&world);
            if let Some(content) = domain.reader().verified().get(collection, doc.id()).await? {
                finals.insert(doc, content);
            }
        }
        self.look_through_the_past(&finals).await?;
        let mut settled = BTreeMap::new();
        for operation in operations {
            let open = matches!(operation.fate, Fate::Unknown | Fate::Unheard);
            let asked = open && !operation.kind.may_leave_no_record();
            let (true, Some(tid)) = (asked && !operation.writes.is_empty(), operation.tid) else {
                continue;
            };
            match domain.outcome(tid).await? {
                TransactionOutcome::Committed { .. } => settled.insert(operation.number, true),
                TransactionOutcome::Aborted => settled.insert(operation.number, false),
                _ => None,
            };
        }
        domain.shutdown(PEACE).await;
        Ok((settled, finals))
    }

    /// Reads history at times that are final.
    ///
    /// The reading process has a clock that is ahead, or reads later if the server tells its time.
    async fn look_through_the_past(
        &mut self,
        finals: &BTreeMap<Doc, Content>,
    ) -> Result<(), Error> {
        let Some(since) = self.past else { return Ok(()) };
        let drift = i64::try_from(self.scenario.max_drift().as_millis()).unwrap_or(i64::MAX);
        let ahead = if self.scenario.server_time {
            tokio::time::sleep(3 * self.scenario.max_drift()).await;
            0
        } else {
            drift + (self.days + 1) * DAY_MILLIS
        };
        let process = self.process_on(self.server.clone(), "historian", 1.0, ahead);
        let domain = self.domain(&process, false).await?;
        let world: World = domain.collection("world").await?;
        let mut dice = self.scenario.trouble.fork();
        let span = [since, self.origin.elapsed()];
        let (history, crashes) = (&self.history, self.scenario.crashes);
        let look = past::look_through(&domain, &world, history, span, &mut dice, crashes);
        let (last, changed) = look.await?;
        self.violations.extend(changed);
        for (doc, content) in last {
            if content.as_ref() != finals.get(&doc) {
                self.violations
                    .push(format!("past: the latest time does not show the final {doc:?}"));
            }
        }
        domain.shutdown(PEACE).await;
        Ok(())
    }

    fn result(
        mut self,
        settled: BTreeMap<u64, bool>,
        finals: BTreeMap<Doc, Content>,
    ) -> (RunResult, Vec<String>) {
        let seed = self.scenario.seed;
        let mut operations = self.history.operations();
        let mut hasher = DefaultHasher::new();
        (self.log.digest(), format!("{operations:?} {finals:?}")).hash(&mut hasher);
        let damaged = std::mem::take(&mut *self.told.damaged.lock());
        if let Some(made_again) = &self.meddler.made_again {
            self.violations.extend(made_again.violations(&self.server.documents(), &damaged));
        }
        for (key, what) in damaged {
            // A report is fair if it is about a collection that came back or was lost.
            let missed = self.scenario.may_miss_collections() && what.contains("does not exist");
            if !missed && !self.is_stuck(&key) {
                self.violations.push(format!("damage: {what}"));
            }
        }
        for process in self.processes.lock().iter().filter(|process| process.is_circling()) {
            let name = process.name();
            self.violations.push(format!("liveness: {name} sends requests without an end"));
        }
        let is_fair = |operation: &&Operation| {
            self.scenario.is_fair(operation) || self.is_told_of_loss(operation)
        };
        let unfair = operations.iter().filter(|operation| !is_fair(operation));
        let unfair: Vec<String> =
            unfair.map(|one| format!("operation {} failed: {:?}", one.number, one.fate)).collect();
        self.violations.extend(unfair);
        let mut counts = self.told.counts.lock().clone();
        for kind in KINDS {
            counts.fault(kind, 0);
        }
        let copied = self.meddler.strays.load(Ordering::Relaxed);
        counts.fault("locks copied", copied);
        let made_again = self.meddler.made_again.is_some();
        counts.fault("indices lost", u64::from(self.meddler.lost && !made_again));
        counts.fault("indices made again", u64::from(made_again));
        for process in self.processes.lock().iter() {
            counts.fault("stores panicked", process.panicked());
        }
        let (injected, misdeeds) = (self.faults.injected(), self.server.misdeeds());
        for (kind, times) in injected.named().into_iter().chain(misdeeds.named()) {
            counts.fault(kind, times);
        }
        counts.note_pairs();
        let mirages = self.server.mirages();
        if matches!(self.scenario.annex, Annex::Lost | Annex::MadeAgain) {
            // The documents of the lost annex are unknown.
            for operation in &mut operations {
                operation.reads.retain(|doc, _| !matches!(doc, Doc::Annex(_)));
                operation.writes.retain(|doc, _| !matches!(doc, Doc::Annex(_)));
            }
        }
        let (scenario, long_locks) = (self.scenario.clone(), std::mem::take(&mut self.long_locks));
        let ledger = Ledger {
            scenario,
            operations,
            settled,
            finals,
            mirages,
            long_locks,
            clean_up: self.clean_up,
            buried: std::mem::take(&mut *self.told.buried.lock()),
            held_up: self.server.held_up(),
        };
        for operation in &ledger.operations {
            let open = matches!(operation.fate, Fate::Unknown | Fate::Unheard);
            match (ledger.committed(operation), open) {
                (Some(true), false) => counts.acknowledged += 1,
                (Some(false), false) => counts.aborted += 1,
                (Some(true), true) => counts.settled_committed += 1,
                _ => counts.settled_aborted += 1,
            }
        }
        if self.violations.iter().all(|violation| !violation.starts_with("no final read")) {
            self.violations.extend(invariants::violations(&ledger));
        }
        let mut log = self.log.take();
        log.extend(ledger.operations.iter().map(|operation| format!("{operation:?}")));
        log.push(format!("{:?}", ledger.scenario));
        let fingerprint = hasher.finish();
        (RunResult { seed, violations: self.violations, counts, fingerprint }, log)
    }
}
