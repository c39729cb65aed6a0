//! Events of transactions as metrics of the [`metrics`] crate.
//!
//! The exporters of that crate send the metrics to Prometheus, StatsD and other systems.
//!
//! ```
//! use std::sync::Arc;
//! use txn_core::Config;
//! use txn_metrics::Metrics;
//!
//! // Install the recorder of the process first: metrics belong to the current recorder.
//! let metrics = Arc::new(Metrics::new("shop"));
//! let config = Config::default().with_observer(Some(metrics.clone()));
//! # let _ = config;
//! ```
//!
//! [`figures::FIGURES`] lists all metrics with units and labels. The values of labels are few and
//! known in advance: the name of the domain, and words. No label contains ids of documents or
//! transactions, names of collections, or texts of errors.

pub mod figures;

use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use txn_core::clock::{Clock, SystemClock};
use txn_core::event::{Event, Observer};
use txn_core::{AttemptId, Error, ErrorKind};

use figures::{FIGURES, Kind};

/// An observer for [`Config::observer`](txn_core::Config::observer) that counts events.
///
/// Create one per domain and process. The observer takes no lock, and waits only if the recorder
/// does.
#[derive(Debug)]
pub struct Metrics {
    clock: Arc<dyn Clock>,
    attempts: Counter,
    commits: Counter,
    commit_seconds: Histogram,
    documents_written: Counter,
    last_commit: Gauge,
    finished: Counter,
    finished_seconds: Histogram,
    aborts: [Counter; 2],
    group_transactions: Histogram,
    locks: Counter,
    lock_handoffs: Counter,
    waits: Counter,
    wounds: Counter,
    replays: Counter,
    recovery_aborts: [Counter; 2],
    unlocks: Counter,
    damages: Counter,
    partitions_dropped: Counter,
    results: Vec<(&'static str, Counter)>,
}

impl Metrics {
    /// Registers all metrics with the current recorder, under the domain's name.
    ///
    /// The counters start at 0. Without a recorder the observer counts nothing.
    #[must_use]
    pub fn new(domain: &str) -> Self {
        describe();
        let domain = domain.to_owned();
        let count = |name: &'static str| counter!(name, "domain" => domain.clone());
        let labelled = |name: &'static str, label: &'static str, value: &'static str| counter!(name, "domain" => domain.clone(), label => value);
        let either = |name, label| [labelled(name, label, "false"), labelled(name, label, "true")];
        let spread = |name: &'static str| histogram!(name, "domain" => domain.clone());
        Self {
            clock: Arc::new(SystemClock::default()),
            attempts: count(figures::ATTEMPTS),
            commits: count(figures::COMMITS),
            commit_seconds: spread(figures::COMMIT_SECONDS),
            documents_written: count(figures::DOCUMENTS_WRITTEN),
            last_commit: gauge!(figures::LAST_COMMIT, "domain" => domain.clone()),
            finished: count(figures::FINISHED),
            finished_seconds: spread(figures::FINISHED_SECONDS),
            aborts: either(figures::ABORTS, "retried"),
            group_transactions: spread(figures::GROUP_TRANSACTIONS),
            locks: count(figures::LOCKS),
            lock_handoffs: count(figures::LOCK_HANDOFFS),
            waits: count(figures::WAITS),
            wounds: count(figures::WOUNDS),
            replays: count(figures::REPLAYS),
            recovery_aborts: either(figures::RECOVERY_ABORTS, "recorded"),
            unlocks: count(figures::UNLOCKS),
            damages: count(figures::DAMAGES),
            partitions_dropped: count(figures::PARTITIONS_DROPPED),
            results: figures::RESULTS
                .iter()
                .map(|result| (*result, labelled(figures::RESULTS_TOTAL, "result", result)))
                .collect(),
        }
    }

    /// Sets the clock for measured times.
    ///
    /// Use the clock of the [`Config`](txn_core::Config), if that has a custom one.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Counts the result of a call.
    ///
    /// No event reports a result: a transaction that fails with [`ErrorKind::Overloaded`], for
    /// example, never begins.
    pub fn result<T>(&self, result: &Result<T, Error>) {
        let word = result.as_ref().map_or_else(|error| word(error.kind()), |_| "committed");
        if let Some((_, counter)) = self.results.iter().find(|(result, _)| *result == word) {
            counter.increment(1);
        }
    }

    /// The time since the begin of the transaction.
    ///
    /// The tid has the time of the first attempt, by the wall clock.
    fn since_begin(&self, tid: AttemptId) -> Duration {
        self.clock.wall().saturating_sub(tid.unix_time())
    }
}

impl Observer for Metrics {
    fn on_event(&self, event: &Event) {
        match event {
            Event::Started { .. } => self.attempts.increment(1),
            Event::GroupFormed { transactions, .. } => {
                self.group_transactions.record(as_f64(*transactions));
            }
            Event::Locked { documents, .. } => self.locks.increment(as_u64(documents.len())),
            Event::HandedOff { documents, .. } => {
                self.lock_handoffs.increment(as_u64(documents.len()));
            }
            Event::Waiting { .. } => self.waits.increment(1),
            Event::Wounded { .. } => self.wounds.increment(1),
            Event::Committed { tid, written, .. } => {
                self.commits.increment(1);
                self.commit_seconds.record(self.since_begin(*tid));
                self.documents_written.increment(as_u64(*written));
                self.last_commit.set(self.clock.wall());
            }
            Event::Aborted { retried, .. } => self.aborts[usize::from(*retried)].increment(1),
            Event::Finished { tid } => {
                self.finished.increment(1);
                self.finished_seconds.record(self.since_begin(*tid));
            }
            Event::Replayed { .. } => self.replays.increment(1),
            Event::AbortedByRecovery { recorded, .. } => {
                self.recovery_aborts[usize::from(*recorded)].increment(1);
            }
            Event::Unlocked { .. } => self.unlocks.increment(1),
            Event::Damaged { .. } => self.damages.increment(1),
            Event::PartitionDropped { .. } => self.partitions_dropped.increment(1),
            // An event of a later version.
            _ => {}
        }
    }
}

fn describe() {
    for figure in FIGURES {
        let (name, unit, about) = (figure.name, figure.unit, figure.about);
        match figure.kind {
            Kind::Counter => describe_counter!(name, unit, about),
            Kind::Gauge => describe_gauge!(name, unit, about),
            Kind::Histogram => describe_histogram!(name, unit, about),
        }
    }
}

fn word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "invalid",
        ErrorKind::Exists => "exists",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Overloaded => "overloaded",
        ErrorKind::Unknown => "unknown",
        ErrorKind::Misconfigured => "misconfigured",
        ErrorKind::Damaged => "damaged",
        _ => "other",
    }
}

fn as_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "no group has so many transactions")]
fn as_f64(n: usize) -> f64 {
    n as f64
}
