//! The load: transactions of every kind, and what their callers are told.
//!
//! - A *transfer* changes accounts and inserts an entry under its idempotency key. A caller that does not know the outcome runs
//!   it again under the same key, and now and then one runs an acknowledged transfer again.
//! - A *pair* is two entries that are inserted together, half of them by a transaction that holds its locks for a while, and
//!   deleted together later on.
//! - A *counter* is two documents with the same number.
//! - A *look* reads all accounts and counters at once.

mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use txn_core::{Collection, Domain, Error, ErrorKind, Typed};
use txn_fixtures::bank::{Account, Accounts};
use txn_fixtures::fixture::PATIENCE;

use crate::book::{Book, Moves};
use crate::reports::{Reports, without_names};

/// Accounts and counters of a load: few, so that transactions meet.
pub(crate) const ACCOUNTS: usize = 8;
pub(crate) const COUNTERS: usize = 4;
pub(crate) const OPENING: i64 = 1_000;

/// The mapping of entries.
pub(crate) const ENTRIES: &str =
    r#"{"properties":{"kind":{"type":"keyword"},"moves":{"type":"long"}}}"#;

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) moves: Moves,
}

/// Entries of transfers, and pairs.
pub(crate) type Entries = Collection<Typed<Entry>>;

/// What a process of the application has opened.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) domain: Domain,
    pub(crate) accounts: Accounts,
    pub(crate) entries: Entries,
}

/// A part of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Before,
    /// The administrator is at work.
    During,
    After,
}

/// Errors of one kind that callers were told in one phase.
#[derive(Clone, Debug)]
pub(crate) struct Complaint {
    pub(crate) kind: ErrorKind,
    pub(crate) count: u64,
    /// Some of the messages.
    pub(crate) messages: Vec<String>,
}

/// Different messages that are kept of each kind and phase.
const MESSAGES: usize = 6;

/// The load. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    processes: Vec<Mutex<Process>>,
    reports: Arc<Reports>,
    book: Mutex<Book>,
    phase: Mutex<Phase>,
    complaints: Mutex<BTreeMap<(Phase, String), Complaint>>,
    acknowledged: AtomicU64,
    runs: AtomicUsize,
}

impl Load {
    /// A load on these processes. Accounts and counters are there already.
    #[must_use]
    pub(crate) fn new(processes: Vec<Process>, reports: Arc<Reports>) -> Self {
        let inner = Inner {
            processes: processes.into_iter().map(Mutex::new).collect(),
            reports,
            book: Mutex::new(Book::new(ACCOUNTS, OPENING, COUNTERS)),
            phase: Mutex::new(Phase::Before),
            complaints: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            runs: AtomicUsize::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs this many workers on each process until `until` resolves. Returns once each has ended what it was at.
    ///
    /// # Panics
    /// If a worker does.
    pub(crate) async fn run(&self, workers: usize, until: impl Future<Output = ()>) {
        let run = self.inner.runs.fetch_add(1, Ordering::SeqCst);
        let over = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for process in 0..self.inner.processes.len() {
            for number in 0..workers {
                let worker = worker::Worker::new(
                    self.clone(),
                    process,
                    &format!("{run}-{process}-{number}"),
                );
                tasks.spawn(worker.work(over.subscribe()));
            }
        }
        until.await;
        over.send_replace(true);
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no worker fails");
        }
    }

    /// Returns once so many more transactions are acknowledged.
    ///
    /// # Errors
    /// If that does not happen in time. The message says what callers were told instead.
    pub(crate) async fn acknowledges(&self, more: u64) -> Result<(), String> {
        let goal = self.acknowledged() + more;
        let enough = async {
            while self.acknowledged() < goal {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, enough).await.map_err(|_| {
            let lacking = goal - self.acknowledged();
            format!(
                "of {more} transactions {lacking} were not acknowledged: {:?}",
                self.complaints()
            )
        })
    }

    /// Transactions that were acknowledged so far.
    #[must_use]
    pub(crate) fn acknowledged(&self) -> u64 {
        self.inner.acknowledged.load(Ordering::SeqCst)
    }

    /// Transactions that begin from now on belong to this phase.
    pub(crate) fn enter(&self, phase: Phase) {
        *self.inner.phase.lock() = phase;
    }

    /// What callers were told, by phase and kind.
    #[must_use]
    pub(crate) fn complaints(&self) -> BTreeMap<(Phase, String), Complaint> {
        self.inner.complaints.lock().clone()
    }

    /// What callers were told of their transactions.
    #[must_use]
    pub(crate) fn book(&self) -> Book {
        self.inner.book.lock().clone()
    }

    /// Changes the book: for documents that the administrator owns.
    pub(crate) fn enter_into_book(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.inner.book.lock());
    }

    /// A process as it is now.
    #[must_use]
    pub(crate) fn process(&self, number: usize) -> Process {
        self.inner.processes[number].lock().clone()
    }

    /// How many processes there are.
    #[must_use]
    pub(crate) fn size(&self) -> usize {
        self.inner.processes.len()
    }

    /// The workers of a process go on with other handles: the application has opened something again.
    pub(crate) fn replace(&self, number: usize, process: Process) {
        *self.inner.processes[number].lock() = process;
    }

    fn complain(&self, phase: Phase, error: &Error) {
        self.inner.reports.error(error);
        let mut complaints = self.inner.complaints.lock();
        let complaint = complaints
            .entry((phase, format!("{:?}", error.kind())))
            .or_insert_with(|| Complaint { kind: error.kind(), count: 0, messages: Vec::new() });
        complaint.count += 1;
        let id = error.document().map_or("(no document)", |key| &key.id);
        let message = without_names(&error.to_string(), id);
        if complaint.messages.len() < MESSAGES && !complaint.messages.contains(&message) {
            complaint.messages.push(message);
        }
    }

    fn anomaly(&self, what: String) {
        self.inner.book.lock().anomalies.push(what);
    }
}

/// An account or a counter with this number in it.
fn number(balance: i64) -> Account {
    Account { balance }
}
