//! One world from its beginning to its end.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use txn_core::event::{Event, Observer};
use txn_core::store::{FaultStore, Store};
use txn_core::{Config, Domain, Error, TransactionOutcome, fields};

use crate::actor::{Actor, World};
use crate::history::{Content, Doc, Fate, History, Operation};
use crate::invariants;
use crate::ledger::Ledger;
use crate::process::{ClockOf, EntropyOf, Log, Process, StoreOf};
use crate::scenario::{ACCOUNTS, Clocks, OPENING, Scenario, TOKENS};
use crate::server::{Manners, REPLICATION, Server};
use crate::virtual_time::in_virtual_time;

/// Most virtual time with faults.
const TROUBLE: Duration = Duration::from_secs(60);
/// In how much virtual time everything must have ended once the faults have.
const PEACE: Duration = Duration::from_secs(300);
/// The deadline of operations that have to get through: everybody else gives up before.
const PATIENT: Duration = Duration::from_secs(3_600);

/// What became of one world.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Its seed.
    pub seed: u64,
    /// What did not hold.
    pub violations: Vec<String>,
    /// How much happened.
    pub counts: Counts,
    /// The same for the same seed and the same engine.
    pub fingerprint: u64,
}

/// How much happened in a world, or in many.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Operations that failed for certain.
    pub aborted: u64,
    /// Operations whose caller was not told, and which are committed.
    pub settled_committed: u64,
    /// Operations whose caller was not told, and which are not committed.
    pub settled_aborted: u64,
    /// Transactions of the dead that were applied or voided by others.
    pub recoveries: u64,
    /// Transactions that were wounded by older ones.
    pub wounds: u64,
    /// Partitions of the transaction table that were dropped.
    pub drops: u64,
    /// Whatever went wrong, by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts a fault.
    fn fault(&mut self, kind: &'static str, times: u64) {
        *self.faults.entry(kind).or_default() += times;
    }

    /// Counts of one more world.
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.aborted += other.aborted;
        self.settled_committed += other.settled_committed;
        self.settled_aborted += other.settled_aborted;
        self.recoveries += other.recoveries;
        self.wounds += other.wounds;
        self.drops += other.drops;
        for (kind, times) in &other.faults {
            self.fault(kind, *times);
        }
    }
}

/// What observers of the engine told.
#[derive(Debug, Default)]
struct Told {
    damaged: Mutex<Vec<String>>,
    counts: Mutex<Counts>,
}

/// One process's observer.
struct Witness {
    name: String,
    told: Arc<Told>,
    log: Arc<Log>,
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Observer for Witness {
    fn on_event(&self, event: &Event) {
        self.log.line(|| format!("{} {event:?}", self.name));
        let mut counts = self.told.counts.lock();
        match event {
            Event::Damaged { .. } => self.told.damaged.lock().push(format!("{event:?}")),
            Event::Wounded { .. } => counts.wounds += 1,
            Event::Replayed { .. } | Event::Voided { .. } => counts.recoveries += 1,
            Event::PartitionDropped { .. } => counts.drops += 1,
            _ => {}
        }
    }
}

/// Runs the world of a seed, in virtual time. The same seed gives the same run.
#[must_use]
pub fn run(seed: u64) -> Verdict {
    run_logged(seed, false).0
}

/// As [`run`], with what the engine told and what the actors did, line by line.
///
/// # Panics
/// If no runtime can be made.
#[must_use]
pub fn run_logged(seed: u64, log: bool) -> (Verdict, Vec<String>) {
    in_virtual_time(async { Simulation::new(Scenario::of(seed), log).run().await })
}

/// A process that runs, and its actors.
struct Running {
    process: Arc<Process>,
    domain: Domain,
    actors: Vec<JoinHandle<()>>,
}

struct Simulation {
    scenario: Scenario,
    origin: Instant,
    server: Arc<Server>,
    faults: Arc<FaultStore>,
    history: History,
    told: Arc<Told>,
    log: Arc<Log>,
    violations: Vec<String>,
    started: u64,
    /// Days that every new process's clock is ahead.
    days: i64,
}

const DAY_MILLIS: i64 = 24 * 3_600 * 1_000;

impl Simulation {
    fn new(scenario: Scenario, log: bool) -> Self {
        let server = Server::new(scenario.seed, Manners::default());
        let faults = Arc::new(FaultStore::new(server.clone(), scenario.faults));
        faults.set_enabled(false);
        let told = Arc::new(Told::default());
        let (log, origin) = (Arc::new(Log::new(log)), Instant::now());
        Self {
            scenario,
            origin,
            server,
            faults,
            history: History::default(),
            told,
            log,
            violations: Vec::new(),
            started: 0,
            days: 0,
        }
    }

    fn process(&mut self, role: &str, speed: f64, off: i64) -> Arc<Process> {
        self.started += 1;
        let name = format!("{role} {}", self.started);
        let store: Arc<dyn Store> = self.faults.clone();
        let seed = self.scenario.seed ^ (self.started << 32);
        Process::new(name, store, self.log.clone(), seed, speed, off)
    }

    async fn domain(&self, process: &Arc<Process>, janitor: bool) -> Result<Domain, Error> {
        let (name, told, log) = (process.name().to_owned(), self.told.clone(), self.log.clone());
        let config = Config::default()
            .with_clock(Arc::new(ClockOf(process.clone())))
            .with_entropy(Arc::new(EntropyOf(process.clone())))
            .with_coordinator(process.name().to_owned())
            .with_observer(Some(Arc::new(Witness { name, told, log })))
            .with_max_drift(self.scenario.max_drift())
            .with_retention_days(1)
            .with_janitor_interval(janitor.then_some(Duration::from_secs(2)));
        Domain::create(Arc::new(StoreOf(process.clone())), "world", config).await
    }

    async fn run(mut self) -> (Verdict, Vec<String>) {
        let prelude = self.prelude().await;
        let mut settled = BTreeMap::new();
        let mut finals = BTreeMap::new();
        match prelude {
            Err(error) => self.violations.push(format!("the world can not be made: {error}")),
            Ok(()) => {
                let running = self.trouble().await;
                self.peace(running).await;
                // What the dead had sent is still carried out.
                tokio::time::sleep(2 * REPLICATION).await;
                match self.last_look().await {
                    Ok(found) => (settled, finals) = found,
                    Err(error) => self.violations.push(format!("no last look: {error}")),
                }
            }
        }
        self.verdict(settled, finals)
    }

    /// The documents that exist from the beginning.
    async fn prelude(&mut self) -> Result<(), Error> {
        let process = self.process("founder", 1.0, 0);
        let domain = self.domain(&process, false).await?;
        let world: World = domain.create_collection("world", None).await?;
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
                Ok::<_, Error>(())
            })
            .await?;
        domain.shutdown(PEACE).await;
        self.server.set_manners(self.scenario.manners);
        self.faults.set_enabled(true);
        Ok(())
    }

    /// Starts a process with its actors. `None` if it did not come up.
    async fn start(&mut self, operations: usize) -> Option<Running> {
        let mut dice = self.scenario.dice.fork();
        let (speed, off) = match self.scenario.clocks {
            Clocks::Tame => (0.99 + 0.02 * dice.f64(), dice.i64(-5_000..=5_000)),
            Clocks::Wild => (0.5 + 1.5 * dice.f64(), dice.i64(-9_000_000..=9_000_000)),
            Clocks::Days => (1.0, self.days * DAY_MILLIS + dice.i64(-5_000..=5_000)),
        };
        let process = self.process("process", speed, off);
        if self.scenario.kills && dice.u8(..3) == 0 {
            process.kill_after(dice.u64(1..400));
        }
        let opened = async {
            let domain = self.domain(&process, true).await?;
            let world: World = domain.collection("world").await?;
            Ok::<_, Error>((domain, world))
        };
        let (domain, world) = tokio::time::timeout(TROUBLE, opened).await.ok()?.ok()?;
        let actors = (0..self.scenario.actors).map(|_| {
            let actor = Actor {
                process: process.clone(),
                domain: domain.clone(),
                world: world.clone(),
                history: self.history.clone(),
                origin: self.origin,
                lock_reads: self.scenario.crashes,
            };
            let mut dice = dice.fork();
            tokio::spawn(async move {
                for _ in 0..operations {
                    let patient = dice.u8(..6) == 0;
                    let deadline =
                        if patient { PATIENT } else { Duration::from_secs(dice.u64(5..40)) };
                    actor.run_one(&mut dice, deadline).await;
                    tokio::time::sleep(Duration::from_millis(dice.u64(..200))).await;
                }
            })
        });
        let actors = actors.collect();
        Some(Running { process, domain, actors })
    }

    /// Lets everybody run while everything goes wrong.
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
            let dead = running.iter().any(|r| r.process.is_killed());
            if restarts > 0 && (dead || all_done) {
                restarts -= 1;
                running.extend(self.start(self.scenario.operations.div_ceil(2)).await);
            }
        }
        running
    }

    /// Something happens to a process or to the server.
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
            Clocks::Tame if dice.u8(..6) == 0 => dice.i64(-5_000..=5_000) - process.off(),
            Clocks::Wild if dice.u8(..3) == 0 => dice.i64(-9_000_000..=9_000_000),
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

    /// No more faults: everything must come to its end.
    async fn peace(&mut self, running: Vec<Running>) {
        self.faults.set_enabled(false);
        self.server.set_manners(Manners::default());
        for one in &running {
            one.process.leave_alone();
        }
        self.faults.settle().await;
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
            let limit = Instant::now() + PEACE;
            if tokio::time::timeout_at(limit, ended).await.is_err() {
                let name = one.process.name();
                self.violations.push(format!("liveness: transactions of {name} do not end"));
            }
            let before = Instant::now();
            one.domain.shutdown(PEACE).await;
            if before.elapsed() >= PEACE {
                let name = one.process.name();
                self.violations.push(format!("liveness: the shutdown of {name} does not end"));
            }
        }
    }

    /// A process that knows nothing of the others cleans up and looks.
    async fn last_look(&mut self) -> Result<(BTreeMap<u64, bool>, BTreeMap<Doc, Content>), Error> {
        let off = (self.days + 1) * DAY_MILLIS / if self.days == 0 { DAY_MILLIS } else { 1 };
        let process = self.process("witness", 1.0, off);
        let domain = self.domain(&process, false).await?;
        let world: World = domain.collection("world").await?;
        let mut report = domain.janitor_pass().await?;
        for _ in 0..5 {
            if report.is_clean() {
                break;
            }
            report = domain.janitor_pass().await?;
        }
        if !report.is_clean() {
            self.violations.push(format!("left over: {report:?}"));
        }
        self.look_at_the_disks();
        let operations = self.history.operations();
        let mut docs: Vec<Doc> =
            operations.iter().flat_map(|operation| operation.writes.keys()).copied().collect();
        docs.extend((0..ACCOUNTS).map(Doc::Account));
        docs.extend((0..2).map(Doc::OnCall));
        docs.extend((0..TOKENS).map(Doc::Token));
        let mut finals = BTreeMap::new();
        for doc in docs {
            if let Some(content) = domain.reader().verified().get(&world, doc.id()).await? {
                finals.insert(doc, content);
            }
        }
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

    /// No lock, no placeholder and no open record is left, whatever the engine says.
    fn look_at_the_disks(&mut self) {
        for (collection, documents) in self.server.documents() {
            for (id, source) in documents {
                let Ok(document) = serde_json::from_str::<serde_json::Value>(&source) else {
                    self.violations.push(format!("{collection}/{id} is no JSON"));
                    continue;
                };
                for field in [fields::TRANSACTION_TID, fields::TRANSACTION_ABSENT] {
                    if document.get(field).is_some_and(|value| !value.is_null()) {
                        self.violations.push(format!("left over: {field} in {collection}/{id}"));
                    }
                }
                let state = document.get(fields::STATE).and_then(|state| state.as_str());
                if let Some(state @ ("pending" | "staged" | "committed")) = state {
                    self.violations.push(format!("left over: {collection}/{id} is {state}"));
                }
            }
        }
    }

    fn verdict(
        mut self,
        settled: BTreeMap<u64, bool>,
        finals: BTreeMap<Doc, Content>,
    ) -> (Verdict, Vec<String>) {
        let seed = self.scenario.seed;
        let operations = self.history.operations();
        let mut hasher = DefaultHasher::new();
        format!("{operations:?} {finals:?}").hash(&mut hasher);
        for what in std::mem::take(&mut *self.told.damaged.lock()) {
            self.violations.push(format!("damage: {what}"));
        }
        let unfair: Vec<String> = operations.iter().filter_map(|o| self.unfair(o)).collect();
        self.violations.extend(unfair);
        let mut counts = self.told.counts.lock().clone();
        let (injected, misdeeds) = (self.faults.injected(), self.server.misdeeds());
        for (kind, times) in injected.named().into_iter().chain(misdeeds.named()) {
            counts.fault(kind, times);
        }
        let mirages = self.server.mirages();
        let scenario = self.scenario.clone();
        let ledger = Ledger { scenario, operations, settled, finals, mirages };
        for operation in &ledger.operations {
            let open = matches!(operation.fate, Fate::Unknown | Fate::Unheard);
            match (ledger.committed(operation), open) {
                (Some(true), false) => counts.acknowledged += 1,
                (Some(false), false) => counts.aborted += 1,
                (Some(true), true) => counts.settled_committed += 1,
                _ => counts.settled_aborted += 1,
            }
        }
        if self.violations.iter().all(|violation| !violation.starts_with("no last look")) {
            self.violations.extend(invariants::violations(&ledger));
        }
        let mut log = self.log.take();
        log.extend(ledger.operations.iter().map(|operation| format!("{operation:?}")));
        log.push(format!("{:?}", ledger.scenario));
        let fingerprint = hasher.finish();
        (Verdict { seed, violations: self.violations, counts, fingerprint }, log)
    }

    /// What the caller of an operation may not be told.
    fn unfair(&self, operation: &Operation) -> Option<String> {
        let Fate::Aborted(why) = &operation.fate else { return None };
        let expected = ["mismatch", "Conflict", "Unavailable"];
        // Clocks that are too far apart are a reason to refuse a commit.
        let clocks = self.scenario.clocks != Clocks::Tame && why.starts_with("Misconfigured");
        let fair = clocks || expected.iter().any(|kind| why.starts_with(kind));
        (!fair).then(|| format!("operation {} failed: {why}", operation.number))
    }
}
