//! Two processes over a store in memory, in virtual time.
//!
//! The processes carry out the steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use txn_core::store::{MemoryStore, Store, Write};
use txn_core::{
    Collection, Config, Domain, Error, ErrorKind, LockMode, Options, ReadMode, Transaction,
    TransactionOutcome, Typed,
};
use txn_sim::tapped::{Delivery, Tap, Tapped};
use txn_sim::{FaultPlan, FaultStore};

use super::ledger::{Intent, Ledger, Work};
use super::machine::{How, KEYS, LastWrite, PROCESSES, SLOTS, Step};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Item {
    value: u64,
}

type Items = Collection<Typed<Item>>;

/// The endings of all transactions of all cases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) committed: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
}

static TALLY: Mutex<Tally> = Mutex::new(Tally { committed: 0, refused: 0, unknown: 0 });

pub(crate) fn tally() -> Tally {
    *TALLY.lock()
}

/// The connection of a process to the store.
///
/// The connection ends when the process dies.
#[derive(Debug, Default)]
struct Line {
    dead: AtomicBool,
    /// The number of writes until the process dies; negative: never.
    writes_left: AtomicI64,
    last: Mutex<Option<Delivery>>,
}

impl Line {
    fn die_at(&self, writes: u8, last: Delivery) {
        *self.last.lock() = Some(last);
        self.writes_left.store(i64::from(writes), Ordering::SeqCst);
    }

    fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Tap for Line {
    async fn on_write(&self, _: &[Write]) -> Delivery {
        if self.dead.load(Ordering::SeqCst) {
            return Delivery::Swallow;
        }
        let Some(last) = *self.last.lock() else { return Delivery::Pass };
        if self.writes_left.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Delivery::Pass;
        }
        self.die();
        last
    }

    async fn on_call(&self) -> Delivery {
        if self.dead.load(Ordering::SeqCst) { Delivery::Swallow } else { Delivery::Pass }
    }
}

struct Process {
    domain: Domain,
    items: Items,
    line: Arc<Line>,
}

/// An open transaction.
struct Session {
    tx: Transaction,
    process: usize,
    work: Work,
    /// A read failed, so the transaction cannot commit.
    doomed: bool,
    /// No other work happened while the transaction was open.
    alone: bool,
}

pub(crate) struct World {
    runtime: Runtime,
    inner: Inner,
}

struct Inner {
    memory: Arc<MemoryStore>,
    store: Arc<FaultStore>,
    sound: bool,
    processes: Vec<Process>,
    /// Reads and decides on a store without faults.
    witness: Process,
    sessions: [Option<Session>; SLOTS],
    ledger: Ledger,
    next_value: AtomicU64,
}

async fn process(store: Arc<dyn Store>) -> Process {
    let line = Arc::new(Line::default());
    let tapped = Arc::new(Tapped::new(store, line.clone()));
    let config = Config::default().with_janitor_interval(None);
    let domain = Domain::open_or_create(tapped, "sessions", config).await.expect("opens");
    let items = domain.create_collection("items", None).await.expect("opens");
    Process { domain, items, line }
}

fn id(key: u8) -> String {
    format!("item-{key}")
}

impl World {
    pub(crate) fn new(faults: Option<u64>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let inner = runtime.block_on(async {
            let memory = Arc::new(MemoryStore::new());
            let plan = faults.map_or_else(|| FaultPlan::none(0), FaultPlan::rough);
            let store = Arc::new(FaultStore::new(memory.clone(), plan));
            store.set_enabled(false);
            let witness = process(memory.clone()).await;
            let mut processes = Vec::new();
            for _ in 0..PROCESSES {
                processes.push(process(store.clone()).await);
            }
            store.set_enabled(true);
            Inner {
                memory,
                store,
                sound: faults.is_none(),
                processes,
                witness,
                sessions: [const { None }; SLOTS],
                ledger: Ledger::default(),
                next_value: AtomicU64::new(1),
            }
        });
        Self { runtime, inner }
    }

    pub(crate) fn carry_out(&mut self, step: &Step) {
        self.runtime.block_on(Box::pin(self.inner.carry_out(step)));
    }

    pub(crate) fn readers_see_what_is_committed(&self) {
        self.runtime.block_on(self.inner.readers_see_what_is_committed());
    }

    pub(crate) fn ends_well(mut self) {
        self.runtime.block_on(Box::pin(self.inner.ends_well()));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Dropped transactions roll back by tasks.
        let _runtime = self.runtime.enter();
        self.inner.sessions = [const { None }; SLOTS];
    }
}

impl Inner {
    async fn carry_out(&mut self, step: &Step) {
        match *step {
            Step::Begin { slot, process, how } => self.begin(slot, process, how),
            Step::Get { slot, key } => self.get(slot, key).await,
            Step::Put { slot, key } => self.put(slot, key),
            Step::Insert { slot, key } => self.insert(slot, key),
            Step::Delete { slot, key } => {
                let session = self.sessions[slot].as_mut().expect("open");
                let items = &self.processes[session.process].items;
                session.tx.delete(items, id(key)).expect("takes it");
                let intent = match session.work.writes.get(&key) {
                    Some(Intent::Insert(_) | Intent::Withdrawn) => Intent::Withdrawn,
                    _ => Intent::Delete,
                };
                session.work.writes.insert(key, intent);
            }
            Step::Commit { slot } => {
                let session = self.sessions[slot].take().expect("open");
                self.commit(session, false).await;
            }
            Step::DieInCommit { slot, at, last } => {
                let session = self.sessions[slot].take().expect("open");
                let process = session.process;
                let last = match last {
                    LastWrite::NotSent => Delivery::Swallow,
                    LastWrite::HalfSent => Delivery::Part(1),
                    LastWrite::NotAnswered => Delivery::Lose,
                };
                self.processes[process].line.die_at(at, last);
                self.commit(session, true).await;
                self.crash(process).await;
            }
            Step::RollBack { slot } => {
                self.sessions[slot].take().expect("open").tx.rollback().await;
            }
            Step::Crash { process } => self.crash(process).await,
            Step::Janitor { process } => {
                self.disturb();
                match self.processes[process].domain.admin().janitor_pass().await {
                    Ok(report) => assert_eq!(report.damaged, [], "{report:?}"),
                    Err(error) => assert!(!self.sound, "the janitor: {error}"),
                }
            }
        }
    }

    fn disturb(&mut self) {
        for session in self.sessions.iter_mut().flatten() {
            session.alone = false;
        }
    }

    fn begin(&mut self, slot: usize, process: usize, how: How) {
        let options = match how {
            How::LocksAtTheEnd => Options::default(),
            How::LocksAsItReads => Options::default().with_lock_mode(LockMode::AtRead),
            How::LocksReadsAtTheEnd => Options::default().with_read_mode(ReadMode::Lock),
            How::OnlyReads => Options::default().with_read_only(true),
        };
        self.disturb();
        let alone = self.sessions.iter().all(Option::is_none);
        let tx = self.processes[process].domain.begin(&options).expect("begins");
        let work = Work::default();
        self.sessions[slot] = Some(Session { tx, process, work, doomed: false, alone });
    }

    async fn get(&mut self, slot: usize, key: u8) {
        let session = self.sessions[slot].as_mut().expect("open");
        let items = &self.processes[session.process].items;
        let read = match session.tx.get(items, id(key)).await {
            Ok(read) => read.map(|item| item.value),
            Err(error) => {
                assert!(!(self.sound && session.alone), "alone, and refused to read: {error}");
                assert!(
                    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable),
                    "{error}"
                );
                session.doomed = true;
                return;
            }
        };
        if let Some(intent) = session.work.writes.get(&key) {
            assert_eq!(read, intent.content(), "its own write of {key}");
        } else if let Some(before) = session.work.reads.get(&key) {
            assert_eq!(read, *before, "it read {key} before");
        } else {
            assert!(self.ledger.was(key, read), "{key} never was {read:?}");
            if self.sound {
                assert_eq!(read, self.ledger.get(key), "{key} is something else");
            }
            session.work.reads.insert(key, read);
        }
    }

    fn put(&mut self, slot: usize, key: u8) {
        let value = self.next_value.fetch_add(1, Ordering::Relaxed);
        let session = self.sessions[slot].as_mut().expect("open");
        let items = &self.processes[session.process].items;
        session.tx.put(items, id(key), &Item { value }).expect("takes it");
        let intent = match session.work.writes.get(&key) {
            Some(Intent::Insert(_) | Intent::Withdrawn) => Intent::Insert(value),
            _ => Intent::Put(value),
        };
        session.work.writes.insert(key, intent);
    }

    fn insert(&mut self, slot: usize, key: u8) {
        let value = self.next_value.fetch_add(1, Ordering::Relaxed);
        let session = self.sessions[slot].as_mut().expect("open");
        let items = &self.processes[session.process].items;
        let inserted = session.tx.insert(items, id(key), &Item { value });
        let intent = match session.work.writes.get(&key) {
            Some(Intent::Put(_) | Intent::Insert(_)) => {
                let error = inserted.expect_err("it wrote it itself");
                assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
                // A refused insert dooms the transaction.
                session.doomed = true;
                return;
            }
            Some(Intent::Delete) => Intent::Put(value),
            Some(Intent::Withdrawn) | None => Intent::Insert(value),
        };
        inserted.expect("takes it");
        session.work.writes.insert(key, intent);
    }

    async fn commit(&mut self, session: Session, dies: bool) {
        let Session { tx, work, doomed, alone, .. } = session;
        let who = format!("the transaction with {work:?}");
        let result = tx.commit().await;
        let error = match result {
            Ok(_) => {
                assert!(!doomed, "{who} was over, and committed");
                self.ledger.commit(&work, &who);
                TALLY.lock().committed += 1;
                return;
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Exists => {
                assert!(doomed || self.ledger.has_one_to_insert(&work), "{who}: {error}");
            }
            ErrorKind::Unknown => return self.find_out(&work, &who, &error).await,
            ErrorKind::Conflict => {
                assert!(!(self.sound && alone && !dies), "alone, and refused: {who}: {error}");
            }
            // Another transaction may have waited until the deadline.
            ErrorKind::Unavailable => assert!(!(self.sound && alone && !dies), "{who}: {error}"),
            _ => panic!("{who}: {error}"),
        }
        TALLY.lock().refused += 1;
    }

    /// Finds out whether a transaction with an unknown outcome committed.
    async fn find_out(&mut self, work: &Work, who: &str, error: &Error) {
        TALLY.lock().unknown += 1;
        // Late writes arrive, and the outcome is then certain.
        self.store.settle().await;
        let committed = if let Some(tid) = error.tid() {
            let outcome = self.witness.domain.outcome(tid).await.expect("known");
            matches!(outcome, TransactionOutcome::Committed { .. })
        } else {
            let [(key, intent)] = work.writes.iter().collect::<Vec<_>>()[..] else {
                panic!("{who} has no record, and more than one document: {error}");
            };
            self.read(*key).await == intent.content()
        };
        if committed {
            self.ledger.commit(work, who);
        }
    }

    /// Replaces a process that dies.
    async fn crash(&mut self, number: usize) {
        self.disturb();
        self.processes[number].line.die();
        for slot in &mut self.sessions {
            if slot.as_ref().is_some_and(|session| session.process == number) {
                *slot = None;
            }
        }
        self.store.set_enabled(false);
        self.processes[number] = process(self.store.clone()).await;
        self.store.set_enabled(true);
    }

    async fn read(&self, key: u8) -> Option<u64> {
        // A verified read would wait for the holder of the document, and the steps would wait, too.
        let reader = self.witness.domain.reader();
        let found = reader.get(&self.witness.items, id(key)).await.expect("reads");
        found.map(|item| item.value)
    }

    async fn readers_see_what_is_committed(&self) {
        for key in 0..KEYS {
            assert_eq!(self.read(key).await, self.ledger.get(key), "what is committed of {key}");
        }
    }

    async fn ends_well(&mut self) {
        for slot in &mut self.sessions {
            if let Some(session) = slot.take() {
                session.tx.rollback().await;
            }
        }
        self.store.set_enabled(false);
        for process in &self.processes {
            process.domain.shutdown(Duration::from_secs(120)).await;
        }
        self.store.settle().await;
        // A process without any earlier state.
        let last = process(self.memory.clone()).await;
        let report = last.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "left over: {report:?}");
        self.readers_see_what_is_committed().await;
    }
}
