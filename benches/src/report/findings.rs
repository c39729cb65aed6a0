//! What the sections of a report found.

use serde::Serialize;

use super::table::Row;
use crate::measure::{Measured, Round};
use crate::pair::Rate;
use crate::world::Way;

/// Everything that was found so far.
#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    /// Figures beside their aims.
    pub(super) rows: Vec<Row>,
    /// Loads, by the section that measured them.
    pub(super) loads: Vec<(&'static str, Measured)>,
    /// One client, by the documents of a transaction.
    pub(super) sizes: Vec<Size>,
    /// What each path costs, counted.
    pub(super) paths: Vec<Path>,
    /// Before, in and after an overload.
    pub(super) phases: Vec<Phase>,
    /// The workload of the account transactions.
    pub(super) pools: Vec<Pool>,
    /// Beside the two-phase commit.
    pub(super) pairs: Vec<Pair>,
    /// Requests, events and locks beside their peers.
    pub(super) systems: Vec<Beside>,
    /// What locks cost the server, by what the documents hold.
    pub(super) locks: Vec<LockWrites>,
    /// Settings of HTTP.
    pub(super) settings: Vec<Setting>,
}

/// One client and a number of documents: latencies in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Size {
    /// Documents of a transaction.
    pub(super) documents: usize,
    /// Plain `_mget` and `_bulk`.
    pub(super) plain: f64,
    /// A transaction that reads from the server.
    pub(super) transaction: f64,
    /// A transaction on what its process wrote last.
    pub(super) from_memory: f64,
    /// Document writes in all, counted.
    pub(super) writes: u64,
}

/// A kind of transaction, where nobody is in the way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Path {
    /// Which kind.
    pub(super) what: String,
    /// Round trips to the acknowledgement.
    pub(super) to_acknowledge: u64,
    /// Round trips in all.
    pub(super) in_all: u64,
    /// Document writes in all.
    pub(super) writes: u64,
}

/// A stretch of an open load: arrivals that do not wait for each other.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Phase {
    /// Before, in or after the overload.
    pub(super) name: &'static str,
    /// Arrivals per second.
    pub(super) offered: f64,
    /// Of these arrivals, those that were carried out, per second.
    pub(super) done: f64,
    /// The median of their times, in milliseconds, from the arrival on.
    pub(super) p50: f64,
    /// 99 of 100 were shorter.
    pub(super) p99: f64,
    /// The longest.
    pub(super) longest: f64,
    /// From when on all arrivals were carried, in seconds; none if not in the end.
    pub(super) calm_after: Option<f64>,
    /// Refusals by the kind of the error.
    pub(super) refused: std::collections::BTreeMap<String, usize>,
    /// Those among them of which the kind does not say what to do.
    pub(super) odd: usize,
    /// Memory of this process in the end, in MiB.
    pub(super) memory: Option<f64>,
}

/// The workload of the account transactions, from the arrival of a user on, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pool {
    /// Who carried it out.
    pub(super) who: String,
    /// From the first arrival to the last answer, in seconds.
    pub(super) run_time: f64,
    /// Their mean.
    pub(super) mean: f64,
    /// 95 of 100 are shorter.
    pub(super) p95: f64,
    /// 99 of 100 are shorter.
    pub(super) p99: f64,
}

/// The two-phase commit and the bank, in turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pair {
    /// Accounts that there are.
    pub(super) accounts: usize,
    /// Clients of each.
    pub(super) clients: usize,
    /// Transfers per second of the two-phase commit, and the median in milliseconds.
    pub(super) peer: (f64, f64),
    /// Of the bank.
    pub(super) bank: (f64, f64),
}

/// A load of one of the systems: of that, or of its peer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Beside {
    /// Which load.
    pub(super) load: String,
    /// Who carried it.
    pub(super) who: &'static str,
    /// What is counted, and timed.
    pub(super) what: &'static str,
    /// How many of them per second, and how long each took.
    pub(super) rate: Rate,
}

/// Requests of 32 locks each, by how a lock is written: the median in milliseconds, and processor time of the server for one lock, in
/// microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LockWrites {
    /// What the documents hold.
    pub(super) content: &'static str,
    /// The whole document, as transactions do it.
    pub(super) whole: (f64, Option<f64>),
    /// A partial update.
    pub(super) partial: (f64, Option<f64>),
}

/// A load under a setting of HTTP.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// Which setting.
    pub(super) name: &'static str,
    /// Clients at once.
    pub(super) clients: usize,
    /// Who moves money.
    pub(super) way: Way,
    /// What it came to.
    pub(super) round: Round,
}

impl Findings {
    /// Keeps loads.
    pub(super) fn keep(&mut self, section: &'static str, measured: &[Measured]) {
        self.loads.extend(measured.iter().map(|one| (section, one.clone())));
    }
}
