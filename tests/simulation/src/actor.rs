//! A session of a simulated process.
//!
//! The session runs one operation after the other.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use txn_core::{
    BarrierReport, Codec, Collection, CompareAndSet, DecodeError, Domain, Error, ErrorKind,
    LockMode, Options, ReadMode, Transaction,
};

use crate::history::{Content, Doc, Fate, History, Kind, World};
use crate::past::{self, audited};
use crate::scenario::{ACCOUNTS, ANNEXED, SHEETS, SLOTS, TOKENS};
use crate::witness::Told;
use txn_sim::machine::{Process, is_planned, panic_as_planned};
use txn_sim::server::Server;

/// A document type that panics at each read and write.
#[derive(Debug)]
pub(crate) struct Bomb;

impl Codec for Bomb {
    type Value = ();

    fn encode((): &()) -> Result<String, serde_json::Error> {
        panic_as_planned()
    }

    fn decode(_: &str) -> Result<(), DecodeError> {
        panic_as_planned()
    }
}

/// The place at which a closure panics after its work.
#[derive(Clone, Copy, Debug)]
enum Panic {
    Itself,
    WhereItReads,
    WhereItWrites,
}

/// A session of a process.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    /// The process of the session.
    pub(crate) process: Arc<Process>,
    /// The engine under test, in this process.
    pub(crate) domain: Domain,
    /// The documents of the environment.
    pub(crate) world: World,
    /// The documents in an own index, if the run has one.
    pub(crate) annex: Option<World>,
    /// The documents as a type that panics, if callers panic.
    pub(crate) bombs: Option<Collection<Bomb>>,
    /// The record of events and counts.
    pub(crate) told: Arc<Told>,
    /// Whether some callers hold their transaction open.
    pub(crate) hangs: bool,
    /// Whether transactions are merged into groups.
    ///
    /// Some callers then do not ask for their tid, because a transaction with an exposed tid runs
    /// alone.
    pub(crate) groups: bool,
    /// The number of stray copies.
    pub(crate) strays: Arc<AtomicU64>,
    /// The operations of all actors.
    pub(crate) history: History,
    /// The start of the run.
    pub(crate) origin: Instant,
    /// Whether transactions lock their reads.
    pub(crate) lock_reads: bool,
    /// Whether slow parts and lost pages are the only faults. Some callers then take their time.
    pub(crate) calm: bool,
    /// The server's documents, if callers wait for barriers.
    pub(crate) barriers: Option<Arc<Server>>,
    /// The start of the history, if the collection keeps one.
    pub(crate) past: Option<Duration>,
}

/// The planned reads and writes of an operation.
///
/// The plan is decided before the operation runs.
#[derive(Clone, Debug)]
enum Plan {
    Transfer { legs: BTreeMap<Doc, i64>, journal: bool },
    Audit { singly: bool },
    OnCall { leaves: u8 },
    Claim { wants: u8 },
    Token { to: u8 },
    Slot(Doc),
    Prune(Doc),
    Note(Doc),
    Both { account: Doc, other: Doc },
    Charge { by: Doc, to: Doc },
    CompareAndSet(Doc),
    Look { doc: Doc, verified: bool },
    Barrier,
    LookBack(Duration),
}

impl Plan {
    fn kind(&self) -> Kind {
        match self {
            Self::Transfer { .. } => Kind::Transfer,
            Self::Audit { .. } => Kind::Audit,
            Self::OnCall { .. } => Kind::OnCall,
            Self::Claim { .. } => Kind::Claim,
            Self::Token { .. } => Kind::Token,
            Self::Slot(_) => Kind::Slot,
            Self::Prune(_) => Kind::Prune,
            Self::Note(_) => Kind::Note,
            Self::Both { other: Doc::Stray(_), .. } => Kind::Tend,
            Self::Both { .. } => Kind::Filing,
            Self::Charge { .. } => Kind::Charge,
            Self::CompareAndSet(_) => Kind::CompareAndSet,
            Self::Look { verified: false, .. } => Kind::Look,
            Self::Look { verified: true, .. } => Kind::VerifiedLook,
            Self::Barrier => Kind::Barrier,
            Self::LookBack(_) => Kind::LookBack,
        }
    }
}

fn account(dice: &mut fastrand::Rng) -> Doc {
    Doc::Account(dice.u8(..ACCOUNTS))
}

/// Legs that sum to zero.
fn legs(dice: &mut fastrand::Rng) -> BTreeMap<Doc, i64> {
    let mut accounts: Vec<u8> = (0..ACCOUNTS).collect();
    dice.shuffle(&mut accounts);
    accounts.truncate(dice.usize(2..=3));
    let mut legs = BTreeMap::new();
    let mut sum = 0;
    for account in &accounts[1..] {
        let amount = dice.i64(-50..=50);
        sum += amount;
        legs.insert(Doc::Account(*account), amount);
    }
    legs.insert(Doc::Account(accounts[0]), -sum);
    legs
}

impl Actor {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn plan(&self, dice: &mut fastrand::Rng) -> Plan {
        if self.annex.is_some() && dice.u8(..5) == 0 {
            return Plan::Both { account: account(dice), other: Doc::Annex(dice.u8(..ANNEXED)) };
        }
        if self.barriers.is_some() && dice.u8(..10) == 0 {
            return Plan::Barrier;
        }
        // Once the run is old enough for reads of history.
        let past = self.past.map(|since| (since, self.domain.history().latest_timestamp()));
        if let Some((since, latest)) = past
            && latest > since
            && dice.u8(..6) == 0
        {
            return Plan::LookBack(since + (latest - since).mul_f64(dice.f64()));
        }
        if self.calm && dice.bool() {
            return Plan::Look { doc: account(dice), verified: false };
        }
        // Many operations read the same account, and each writes a sheet.
        if self.groups && dice.u8(..3) == 0 {
            return Plan::Charge { by: account(dice), to: Doc::Sheet(dice.u8(..SHEETS)) };
        }
        let strays = self.strays.load(Ordering::Relaxed);
        if strays > 0 && dice.u8(..8) == 0 {
            return Plan::Both { account: account(dice), other: Doc::Stray(dice.u64(..strays)) };
        }
        match dice.u8(..100) {
            0..28 => Plan::Transfer { legs: legs(dice), journal: dice.u8(..3) == 0 },
            28..42 => Plan::Audit { singly: dice.bool() },
            42..51 => Plan::OnCall { leaves: dice.u8(..2) },
            51..59 => Plan::Claim { wants: dice.u8(..2) },
            59..67 => Plan::Token { to: dice.u8(..TOKENS) },
            67..74 => Plan::Slot(Doc::Slot(dice.u8(..SLOTS))),
            74..80 => match self.history.journal(dice.usize(..1_000)) {
                Some(doc) => Plan::Prune(doc),
                None => Plan::Slot(Doc::Slot(0)),
            },
            80..86 => Plan::Note(account(dice)),
            86..92 => Plan::CompareAndSet(account(dice)),
            _ => Plan::Look { doc: account(dice), verified: dice.bool() },
        }
    }

    /// Runs one operation to its end, or until the process dies.
    pub(crate) async fn run_one(&self, dice: &mut fastrand::Rng, deadline: Duration) {
        let plan = self.plan(dice);
        let kind = plan.kind();
        let number = self.history.begin(self.process.name(), kind, self.now());
        if let Plan::Transfer { legs, .. } = &plan {
            self.history.note(number, |operation| operation.legs.clone_from(legs));
        }
        let fate = async {
            match &plan {
                Plan::CompareAndSet(doc) => self.compare_and_set(number, *doc, dice).await,
                Plan::Look { doc, verified } => self.look(number, *doc, *verified).await,
                Plan::Barrier => self.barrier(number, deadline).await,
                Plan::LookBack(moment) => {
                    let found =
                        past::look_back(&self.domain, &self.world, *moment, &audited()).await;
                    if let Ok(found) = &found {
                        self.history.note(number, |operation| {
                            operation.moment = Some(*moment);
                            operation.reads.clone_from(found);
                        });
                    }
                    Some(fate(found.map(drop)))
                }
                plan => self.transact(number, plan, dice, deadline).await,
            }
        };
        let fate = match AssertUnwindSafe(fate).catch_unwind().await {
            Ok(fate) => fate,
            // No caller receives an answer.
            Err(panic) if is_planned(&*panic) => None,
            Err(panic) => resume_unwind(panic),
        };
        let now = self.now();
        if let Some(fate) = fate {
            self.history.note(number, |operation| {
                (operation.fate, operation.ended) = (fate, Some(now));
            });
        }
    }

    async fn transact(
        &self,
        number: u64,
        plan: &Plan,
        dice: &mut fastrand::Rng,
        deadline: Duration,
    ) -> Option<Fate> {
        let read_only = matches!(plan, Plan::Audit { .. }) && dice.bool();
        let options = Options::default()
            .with_lock_mode(match dice.u8(..5) {
                0 => LockMode::AtRead,
                _ => LockMode::AtCommit,
            })
            .with_read_mode(match self.lock_reads || dice.u8(..5) == 0 {
                true => ReadMode::Lock,
                false => ReadMode::Validate,
            })
            .with_read_only(read_only)
            .with_timeout(Some(deadline));
        let hang = (self.hangs && dice.u8(..12) == 0).then(|| dice.u64(15..120));
        // Some callers take their time, within every limit.
        let hang = hang.or_else(|| (self.calm && dice.u8(..4) == 0).then(|| dice.u64(2..7)));
        let panic = self.bombs.is_some() && dice.u8(..10) == 0;
        let panic = panic.then_some([Panic::Itself, Panic::WhereItReads, Panic::WhereItWrites]);
        let panic = panic.map(|kinds| kinds[dice.usize(..kinds.len())]);
        // A closure that hangs holds locks, and hangs once.
        let options =
            if hang.is_some() { options.with_lock_mode(LockMode::AtRead) } else { options };
        let hang = Mutex::new(hang.map(Duration::from_secs));
        let pauses = Mutex::new(dice.fork());
        // A caller that asks for its tid has a record. Some transactions take the path without a
        // record.
        let goes_with_others = self.groups && dice.u8(..4) > 0;
        let asks = !plan.kind().may_leave_no_record() && !goes_with_others;
        let options = options.with_own_record(asks);
        let dawdles = dice.u64(..4) * dice.u64(..4) * 10;
        let run = self.domain.run::<_, Error, _>(&options, async |tx| {
            let tid = asks.then(|| tx.tid()).transpose()?;
            self.history.note(number, |operation| {
                operation.tid = tid;
                operation.reads.clear();
                operation.writes.clear();
            });
            let _at_work = tid.map(|tid| self.told.at_work(tid));
            self.carry_out(tx, number, plan).await?;
            let pause = pauses.lock().u64(..=dawdles);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.process.step().await;
            let hang = hang.lock().take().filter(|_| !self.told.calm.load(Ordering::Relaxed));
            if let Some(hang) = hang {
                self.told.counts.lock().fault("callers hung", 1);
                self.process.log(|| format!("operation {number} hangs"));
                tokio::time::sleep(hang).await;
            }
            match (panic, &self.bombs) {
                (Some(panic), Some(bombs)) => self.panic(tx, number, bombs, panic).await,
                _ => Ok(()),
            }
        });

        // Some callers drop their future.
        if dice.u8(..25) == 0 {
            let patience = Duration::from_millis(dice.u64(..200));
            return Some(fate(tokio::time::timeout(patience, run).await.ok()?.map(drop)));
        }
        let result = run.await;
        // The answer names the attempt of a transaction in a group.
        let tid = match &result {
            Ok(committed) => committed.receipt.tid,
            Err(error) => error.tid(),
        };
        let commit = result.as_ref().ok().and_then(|committed| committed.receipt.commit_version);
        self.history.note(number, |operation| {
            (operation.tid, operation.commit) = (operation.tid.or(tid), commit);
        });
        Some(fate(result.map(drop)))
    }

    /// Panics in one of the three ways.
    async fn panic(
        &self,
        tx: &Transaction,
        number: u64,
        bombs: &Collection<Bomb>,
        panic: Panic,
    ) -> Result<(), Error> {
        self.told.counts.lock().fault("callers panicked", 1);
        self.process.log(|| format!("operation {number} panics: {panic:?}"));
        match panic {
            Panic::Itself => panic_as_planned(),
            Panic::WhereItReads => tx.get(bombs, Doc::Account(0).id()).await.map(drop),
            Panic::WhereItWrites => tx.put(bombs, Doc::Account(0).id(), &()),
        }
    }

    fn collection(&self, doc: Doc) -> &World {
        match (doc, &self.annex) {
            (Doc::Annex(_), Some(annex)) => annex,
            _ => &self.world,
        }
    }

    async fn get(&self, tx: &Transaction, number: u64, doc: Doc) -> Result<Option<Content>, Error> {
        let content = tx.get(self.collection(doc), doc.id()).await?;
        self.history.note(number, |operation| {
            operation.reads.insert(doc, content.clone());
        });
        Ok(content)
    }

    fn put(&self, tx: &Transaction, number: u64, doc: Doc, content: &Content) -> Result<(), Error> {
        self.note_write(number, doc, Some(content.clone()));
        tx.put(self.collection(doc), doc.id(), content)
    }

    fn delete(&self, tx: &Transaction, number: u64, doc: Doc) -> Result<(), Error> {
        self.note_write(number, doc, None);
        tx.delete(&self.world, doc.id())
    }

    fn note_write(&self, number: u64, doc: Doc, content: Option<Content>) {
        self.history.note(number, |operation| {
            operation.writes.insert(doc, content);
        });
    }

    async fn carry_out(&self, tx: &Transaction, number: u64, plan: &Plan) -> Result<(), Error> {
        match plan {
            Plan::Transfer { legs, journal } => {
                for (doc, leg) in legs {
                    let content = self.get(tx, number, *doc).await?.unwrap_or_default();
                    self.put(tx, number, *doc, &content.after(number, *leg))?;
                }
                if *journal {
                    let (doc, content) = (Doc::Journal(number), Content::default());
                    let content = content.after(number, 0);
                    self.note_write(number, doc, Some(content.clone()));
                    tx.insert(&self.world, doc.id(), &content)?;
                }
            }
            Plan::Audit { singly: true } => {
                for doc in audited() {
                    self.get(tx, number, doc).await?;
                }
            }
            Plan::Audit { singly: false } => {
                let docs = audited();
                let found = tx.get_many(&self.world, docs.iter().map(|doc| doc.id())).await?;
                self.history.note(number, |operation| {
                    operation.reads.extend(docs.iter().copied().zip(found.iter().cloned()));
                });
            }
            Plan::OnCall { leaves } => {
                let me = self.get(tx, number, Doc::OnCall(*leaves)).await?.unwrap_or_default();
                let other = self.get(tx, number, Doc::OnCall(1 - leaves)).await?;
                let other = other.unwrap_or_default();
                if me.on && other.on {
                    let me = Content { on: false, ..me.after(number, 0) };
                    self.put(tx, number, Doc::OnCall(*leaves), &me)?;
                } else {
                    for (doc, content) in [(*leaves, me), (1 - leaves, other)] {
                        let content = Content { on: true, ..content.after(number, 0) };
                        self.put(tx, number, Doc::OnCall(doc), &content)?;
                    }
                }
            }
            Plan::Claim { wants } => {
                let mine = self.get(tx, number, Doc::Claim(*wants)).await?;
                let other = self.get(tx, number, Doc::Claim(1 - wants)).await?;
                match (mine, other) {
                    (None, None) => {
                        let content = Content::default().after(number, 0);
                        self.put(tx, number, Doc::Claim(*wants), &content)?;
                    }
                    (mine, other) => {
                        for (doc, found) in [(*wants, mine), (1 - wants, other)] {
                            if found.is_some() {
                                self.delete(tx, number, Doc::Claim(doc))?;
                            }
                        }
                    }
                }
            }
            Plan::Token { to } => {
                let mut from = None;
                for n in 0..TOKENS {
                    if self.get(tx, number, Doc::Token(n)).await?.is_some() {
                        from = Some(n);
                    }
                }
                let Some(from) = from.filter(|from| from != to) else { return Ok(()) };
                self.delete(tx, number, Doc::Token(from))?;
                let content = Content::default().after(number, 0);
                self.put(tx, number, Doc::Token(*to), &content)?;
            }
            Plan::Slot(doc) => match self.get(tx, number, *doc).await? {
                None => {
                    let content = Content::default().after(number, 0);
                    self.note_write(number, *doc, Some(content.clone()));
                    tx.insert(&self.world, doc.id(), &content)?;
                }
                Some(_) => self.delete(tx, number, *doc)?,
            },
            Plan::Prune(doc) => {
                if self.get(tx, number, *doc).await?.is_some() {
                    self.delete(tx, number, *doc)?;
                }
            }
            Plan::Note(doc) => {
                let content = self.get(tx, number, *doc).await?.unwrap_or_default();
                self.put(tx, number, *doc, &content.after(number, 0))?;
            }
            Plan::Both { account, other: stray @ Doc::Stray(_) } => {
                let content = self.get(tx, number, *account).await?.unwrap_or_default();
                self.put(tx, number, *account, &content.after(number, 0))?;
                // A stray copy has to be writable; its content is arbitrary.
                tx.get(&self.world, stray.id()).await?;
                tx.put(&self.world, stray.id(), &Content::default().after(number, 0))?;
            }
            Plan::Both { account, other } => {
                for doc in [account, other] {
                    let content = self.get(tx, number, *doc).await?.unwrap_or_default();
                    self.put(tx, number, *doc, &content.after(number, 0))?;
                }
            }
            Plan::Charge { by, to } => {
                self.get(tx, number, *by).await?;
                let content = self.get(tx, number, *to).await?.unwrap_or_default();
                self.put(tx, number, *to, &content.after(number, 0))?;
            }
            // No transaction.
            Plan::CompareAndSet(_) | Plan::Look { .. } | Plan::Barrier | Plan::LookBack(_) => {}
        }
        Ok(())
    }

    async fn look(&self, number: u64, doc: Doc, verified: bool) -> Option<Fate> {
        let reader = self.domain.reader();
        let reader = if verified { reader.verified() } else { reader };
        let read = reader.get(&self.world, doc.id()).await;
        if let Ok(content) = &read {
            self.history.note(number, |operation| {
                operation.reads.insert(doc, content.clone());
            });
        }
        Some(fate(read.map(drop)))
    }

    /// Waits for a barrier. The documents then contain each write that was acknowledged before.
    async fn barrier(&self, number: u64, wait: Duration) -> Option<Fate> {
        let report = self.domain.barrier(wait).await;
        let passed = report.and_then(BarrierReport::into_result);
        if let (Ok(()), Some(server)) = (&passed, &self.barriers) {
            let documents = server.documents();
            let world = documents.get("world");
            let lasting =
                (0..ACCOUNTS).map(Doc::Account).chain((0..2).map(Doc::OnCall)).map(|doc| {
                    let source = world.and_then(|world| world.get(&doc.id()));
                    (doc, source.and_then(|source| serde_json::from_str(source).ok()))
                });
            self.history.note(number, |operation| operation.reads.extend(lasting));
        }
        Some(fate(passed))
    }

    async fn compare_and_set(
        &self,
        number: u64,
        doc: Doc,
        dice: &mut fastrand::Rng,
    ) -> Option<Fate> {
        let snapshot = match self.domain.reader().read(&self.world, doc.id()).await {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(fate(Err(error))),
        };
        let Some(before) = snapshot.value.clone() else {
            return Some(Fate::Aborted("mismatch: a stale read shows no document".to_owned()));
        };
        let after = before.clone().after(number, 0);
        self.history.note(number, |operation| {
            operation.reads.insert(doc, Some(before));
            operation.writes.insert(doc, Some(after.clone()));
        });
        tokio::time::sleep(Duration::from_millis(dice.u64(..20))).await;
        match self.domain.compare_and_set(&self.world, &snapshot, &after).await {
            Ok(CompareAndSet::Written(_)) => Some(Fate::Committed),
            Ok(CompareAndSet::Mismatch) => Some(Fate::Aborted("mismatch".to_owned())),
            Err(error) => Some(fate(Err(error))),
        }
    }
}

fn fate(result: Result<(), Error>) -> Fate {
    match result {
        Ok(()) => Fate::Committed,
        Err(error) if error.kind() == ErrorKind::Unknown => Fate::Unknown,
        Err(error) => Fate::Aborted(format!("{:?}: {error}", error.kind())),
    }
}
