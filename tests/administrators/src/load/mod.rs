//! The load: transactions of every kind, and the outcomes of their callers.
//!
//! - A *transfer* changes accounts and inserts an entry under its idempotency key. A caller with an
//!   unknown outcome runs the transfer again under the same key. Now and then a caller repeats an
//!   acknowledged transfer.
//! - A *pair* is two entries that are inserted together, and deleted together later. Half of the
//!   insertions hold their locks for some time.
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
use txn_core::{Collection, Domain, Error, Typed};
use txn_fixtures::bank::{Account, Accounts};
use txn_fixtures::complaints::{Complaint, Complaints};
use txn_fixtures::fixture::PATIENCE;

use crate::book::{Book, Moves};
use crate::reports::Reports;

/// The accounts and counters of a load: few, so that transactions conflict.
pub(crate) const ACCOUNTS: usize = 8;
pub(crate) const COUNTERS: usize = 4;
pub(crate) const OPENING: i64 = 1_000;

/// The mapping of entries.
pub(crate) const ENTRIES: &str =
    r#"{"properties":{"kind":{"type":"keyword"},"moves":{"type":"long"}}}"#;

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) moves: Moves,
}

/// Entries of transfers, and pairs.
pub(crate) type Entries = Collection<Typed<Entry>>;

/// The handles of a process of the application.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) domain: Domain,
    pub(crate) accounts: Accounts,
    pub(crate) entries: Entries,
}

/// A phase of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Before,
    /// The administrator works.
    During,
    After,
}

/// The load. Clones share all state.
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
    complaints: Complaints<Phase>,
    acknowledged: AtomicU64,
    runs: AtomicUsize,
}

impl Load {
    /// Creates a load on these processes, with existing accounts and counters.
    #[must_use]
    pub(crate) fn new(processes: Vec<Process>, reports: Arc<Reports>) -> Self {
        let inner = Inner {
            processes: processes.into_iter().map(Mutex::new).collect(),
            reports,
            book: Mutex::new(Book::new(ACCOUNTS, OPENING, COUNTERS)),
            phase: Mutex::new(Phase::Before),
            complaints: Complaints::default(),
            acknowledged: AtomicU64::new(0),
            runs: AtomicUsize::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs this many workers on each process until `until` resolves.
    ///
    /// Returns after each worker has ended its transaction.
    ///
    /// # Panics
    /// If a worker panics.
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

    /// Waits until this many further transactions are acknowledged.
    ///
    /// # Errors
    /// If the load makes no progress. The message holds the errors of callers.
    pub(crate) async fn acknowledges(&self, more: u64) -> Result<(), String> {
        let goal = self.acknowledged() + more;
        let enough = async {
            while self.acknowledged() < goal {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = enough => Ok(()),
            () = self.stalls() => Err(format!(
                "of {more} transactions {} were not acknowledged: {:?}",
                goal.saturating_sub(self.acknowledged()),
                self.complaints()
            )),
        }
    }

    /// Waits until no transaction was acknowledged for [`PATIENCE`].
    ///
    /// A slow server does not end a case, only a load without progress does.
    pub(crate) async fn stalls(&self) {
        let mut last = None;
        while last != Some(self.acknowledged()) {
            last = Some(self.acknowledged());
            tokio::time::sleep(PATIENCE).await;
        }
    }

    /// Returns the number of acknowledged transactions.
    #[must_use]
    pub(crate) fn acknowledged(&self) -> u64 {
        self.inner.acknowledged.load(Ordering::SeqCst)
    }

    /// Sets the phase of transactions that begin from now on.
    pub(crate) fn enter(&self, phase: Phase) {
        *self.inner.phase.lock() = phase;
    }

    /// Returns the errors of callers, by phase and kind.
    #[must_use]
    pub(crate) fn complaints(&self) -> BTreeMap<(Phase, String), Complaint> {
        self.inner.complaints.so_far()
    }

    /// Returns the outcomes of all transactions.
    #[must_use]
    pub(crate) fn book(&self) -> Book {
        self.inner.book.lock().clone()
    }

    /// Changes the expected state, for documents of the administrator.
    pub(crate) fn enter_into_book(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.inner.book.lock());
    }

    /// Returns the current handles of a process.
    #[must_use]
    pub(crate) fn process(&self, number: usize) -> Process {
        self.inner.processes[number].lock().clone()
    }

    /// Returns the number of processes.
    #[must_use]
    pub(crate) fn size(&self) -> usize {
        self.inner.processes.len()
    }

    /// Gives the workers of a process new handles.
    ///
    /// The application has opened the handles again.
    pub(crate) fn replace(&self, number: usize, process: Process) {
        *self.inner.processes[number].lock() = process;
    }

    fn complain(&self, phase: Phase, error: &Error) {
        self.inner.reports.error(error);
        self.inner.complaints.add(phase, error);
    }

    fn anomaly(&self, what: String) {
        self.inner.book.lock().anomalies.push(what);
    }
}

/// Returns an account or a counter with this number.
fn number(balance: i64) -> Account {
    Account { balance }
}
