//! The measurements of a run.

use crate::network::{Purpose, Sending};
use crate::store::{Micros, Operation};
use crate::workload::{Kind, Transaction};

/// Counts during a run.
#[derive(Debug, Default)]
pub struct Measures {
    latencies: Vec<Vec<Micros>>,
    handler_latencies: Vec<Micros>,
    open: Vec<Micros>,
    /// Increments of all transactions that started.
    pub started_increments: i64,
    acknowledged_increments: i64,
    /// Steps with a lock in which a process waited for the board.
    pub waits_with_locks: u64,
    /// Committed batches, and their transactions.
    pub batches: (u64, u64),
    writes: u64,
    board_writes: u64,
    board_looks: u64,
}

/// The result of a run. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Commits per second of each process.
    pub commits: Vec<f64>,
    /// The 99th percentile of the latency of each process.
    pub p99: Vec<f64>,
    /// The median latency of each process.
    pub median: Vec<f64>,
    /// The longest latency of each process. Transactions that have no answer at the end count, too.
    pub longest: Vec<f64>,
    /// The 99th percentile of the latency of outbox handlers.
    pub handlers_p99: f64,
    /// Transactions per batch.
    pub batch: f64,
    /// Writes per commit.
    pub writes: f64,
    /// Writes of the board per second.
    pub board_writes: f64,
    /// Reads of the board per second, including those in other requests.
    pub board_looks: f64,
    /// Acknowledged increments that the documents lack.
    pub lost: i64,
    /// Increments of the documents that no transaction made.
    pub invented: i64,
    /// Steps with a lock in which a process waited for the board.
    pub waits_with_locks: u64,
}

impl Measures {
    /// Creates empty measurements of this many processes.
    #[must_use]
    pub fn new(processes: usize) -> Self {
        Self { latencies: vec![Vec::new(); processes], open: vec![0; processes], ..Self::default() }
    }

    /// Counts a commit.
    pub fn commit(&mut self, process: usize, transaction: &Transaction, now: Micros, counts: bool) {
        if matches!(transaction.kind, Kind::Write | Kind::SingleWrite) {
            self.acknowledged_increments += transaction.documents.len() as i64;
        }
        let latency = now - transaction.started_at;
        if !counts {
            return;
        }
        if transaction.client.is_none() && transaction.documents.len() == 1 {
            self.handler_latencies.push(latency);
        } else {
            self.latencies[process].push(latency);
        }
    }

    /// Counts a request.
    pub fn send(&mut self, sending: &Sending, counts: bool) {
        if !counts {
            return;
        }
        let looks = sending.operations.iter().filter(|sent| matches!(sent, Operation::Look(_)));
        self.board_looks += looks.count() as u64;
        match sending.purpose {
            Purpose::WriteBoard => self.board_writes += 1,
            Purpose::Lock(_) | Purpose::Record(_) | Purpose::Apply | Purpose::Wound(_) => {
                self.writes += 1;
            }
            _ => {}
        }
    }

    /// Notes since when a transaction without an answer waits.
    pub fn note_open(&mut self, process: usize, oldest: Option<Micros>, now: Micros) {
        self.open[process] = oldest.map_or(0, |oldest| now - oldest);
    }

    /// Returns the result.
    #[must_use]
    pub fn outcome(self, seconds: u64, total: i64) -> Outcome {
        let commits: usize = self.latencies.iter().map(Vec::len).sum();
        let commits = commits.max(1) as f64;
        let per_second = |count: u64| count as f64 / seconds as f64;
        let sorted: Vec<Vec<Micros>> = self
            .latencies
            .into_iter()
            .map(|mut latencies| {
                latencies.sort_unstable();
                latencies
            })
            .collect();
        let mut handlers = self.handler_latencies;
        handlers.sort_unstable();
        let of = |share: f64| sorted.iter().map(|latencies| quantile(latencies, share)).collect();
        let longest = sorted
            .iter()
            .zip(&self.open)
            .map(|(latencies, open)| {
                let answered = latencies.last().copied().unwrap_or(0);
                answered.max(*open) as f64 / 1_000.0
            })
            .collect();
        Outcome {
            commits: sorted.iter().map(|of_one| of_one.len() as f64 / seconds as f64).collect(),
            p99: of(0.99),
            median: of(0.5),
            longest,
            handlers_p99: quantile(&handlers, 0.99),
            batch: self.batches.1 as f64 / self.batches.0.max(1) as f64,
            writes: self.writes as f64 / commits,
            board_writes: per_second(self.board_writes),
            board_looks: per_second(self.board_looks),
            lost: (self.acknowledged_increments - total).max(0),
            invented: (total - self.started_increments).max(0),
            waits_with_locks: self.waits_with_locks,
        }
    }
}

impl Outcome {
    /// Returns the commits per second of all processes.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.commits.iter().sum()
    }

    /// Returns the slowest process's commits per commit of the fastest process.
    #[must_use]
    pub fn share(&self) -> f64 {
        let least = self.commits.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.commits.iter().copied().fold(0.0, f64::max);
        if most > 0.0 { least / most } else { 0.0 }
    }

    /// Returns the largest 99th percentile of a process.
    #[must_use]
    pub fn worst_p99(&self) -> f64 {
        self.p99.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the longest latency of all processes.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.longest.iter().copied().fold(0.0, f64::max)
    }
}

fn quantile(sorted: &[Micros], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::INFINITY };
    sorted[(last as f64 * share) as usize] as f64 / 1_000.0
}
