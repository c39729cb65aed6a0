//! The results of the sections of a report.

use serde::Serialize;

use super::table::Row;
use crate::measure::{Measured, Round};
use crate::pair::Rate;
use crate::world::Way;

/// All results so far.
#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    /// Results with their aims.
    pub(super) rows: Vec<Row>,
    /// Loads, by their section.
    pub(super) loads: Vec<(&'static str, Measured)>,
    /// One client, by the documents of a transaction.
    pub(super) sizes: Vec<Size>,
    /// The counted cost of each path.
    pub(super) paths: Vec<Path>,
    /// Before, during and after an overload.
    pub(super) phases: Vec<Phase>,
    /// The workload of the account transactions.
    pub(super) pools: Vec<Pool>,
    /// The comparison with the two-phase commit.
    pub(super) pairs: Vec<Pair>,
    /// Requests, events and locks, compared with their peers.
    pub(super) systems: Vec<Beside>,
    /// The cost of locks on the server, by the content of documents.
    pub(super) locks: Vec<LockWrites>,
    /// Settings of HTTP.
    pub(super) settings: Vec<Setting>,
}

/// The latencies of one client for a number of documents, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Size {
    /// The number of documents of a transaction.
    pub(super) documents: usize,
    /// Plain `_mget` and `_bulk`.
    pub(super) plain: f64,
    /// A transaction's requests in turn, without its protocol. The first value is with the read,
    /// and the second one without it.
    pub(super) steps: [f64; 2],
    /// A transaction that reads from the server.
    pub(super) transaction: f64,
    /// A transaction on the last writes of its process.
    pub(super) from_memory: f64,
    /// The total number of document writes, counted.
    pub(super) writes: u64,
}

/// A kind of transaction, without conflicts.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Path {
    /// The name of the kind.
    pub(super) what: String,
    /// Round trips to the acknowledgement.
    pub(super) to_acknowledge: u64,
    /// All round trips.
    pub(super) in_all: u64,
    /// All document writes.
    pub(super) writes: u64,
}

/// A phase of an open load.
///
/// Arrivals do not wait for each other.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Phase {
    /// Before, during or after the overload.
    pub(super) name: &'static str,
    /// Arrivals per second.
    pub(super) offered: f64,
    /// Arrivals that were carried out, per second.
    pub(super) done: f64,
    /// The median time from the arrival on, in milliseconds.
    pub(super) p50: f64,
    /// The 99th percentile.
    pub(super) p99: f64,
    /// The maximum.
    pub(super) longest: f64,
    /// The time after which all arrivals were carried out, in seconds.
    ///
    /// `None` if some arrivals failed until the end.
    pub(super) calm_after: Option<f64>,
    /// Refusals, by the kind of the error.
    pub(super) refused: std::collections::BTreeMap<String, usize>,
    /// Refusals whose kind names no action.
    pub(super) odd: usize,
    /// Memory of this process at the end, in MiB.
    pub(super) memory: Option<f64>,
}

/// The workload of the account transactions.
///
/// Times are from the arrival of a user on, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pool {
    /// The system.
    pub(super) who: String,
    /// From the first arrival to the last answer, in seconds.
    pub(super) run_time: f64,
    pub(super) mean: f64,
    /// The 95th percentile.
    pub(super) p95: f64,
    /// The 99th percentile.
    pub(super) p99: f64,
}

/// The two-phase commit and the bank, in turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pair {
    /// The number of accounts.
    pub(super) accounts: usize,
    /// The number of clients of each.
    pub(super) clients: usize,
    /// Transfers per second of the two-phase commit, and the median in milliseconds.
    pub(super) peer: (f64, f64),
    /// The same of the bank.
    pub(super) bank: (f64, f64),
}

/// A load of one of the systems, or of its peer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Beside {
    /// The name of the load.
    pub(super) load: String,
    /// The system or the peer.
    pub(super) who: &'static str,
    /// The counted and timed operation.
    pub(super) what: &'static str,
    /// Operations per second, and their times.
    pub(super) rate: Rate,
}

/// Requests with 32 locks, by the way a lock is written.
///
/// Each value has the median in milliseconds, and processor time of the server per lock in
/// microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LockWrites {
    /// The content of the documents.
    pub(super) content: &'static str,
    /// The whole document, as transactions write it.
    pub(super) whole: (f64, Option<f64>),
    /// A partial update.
    pub(super) partial: (f64, Option<f64>),
}

/// A load under a setting of HTTP.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// The name of the setting.
    pub(super) name: &'static str,
    /// The number of concurrent clients.
    pub(super) clients: usize,
    /// The way to move money.
    pub(super) way: Way,
    /// The result.
    pub(super) round: Round,
}

impl Findings {
    /// Keeps the results of loads.
    pub(super) fn keep(&mut self, section: &'static str, measured: &[Measured]) {
        self.loads.extend(measured.iter().map(|one| (section, one.clone())));
    }
}
