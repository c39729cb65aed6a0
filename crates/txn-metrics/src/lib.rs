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
//! transactions, names of collections, or texts of errors. Labels of transactions
//! ([`Options::with_label`](txn_core::Options::with_label)) count only if [`Metrics::with_labels`]
//! lists them.

pub mod figures;
mod series;
mod systems;

use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use txn_core::clock::{Clock, SystemClock};
use txn_core::event::{Event, Observer};
use txn_core::{AttemptId, Domain, Error, ErrorKind, TransactionOutcome};

use figures::{FIGURES, Kind};
use series::{ByLabel, ByValue};
use systems::Systems;

pub use systems::OutboxLevels;

/// An observer for [`Config::with_observer`](txn_core::Config::with_observer) that counts events.
///
/// Create one per domain and process. The observer takes no lock, and waits only if the recorder
/// does.
#[derive(Debug)]
pub struct Metrics {
    domain: String,
    clock: Arc<dyn Clock>,
    attempts: Counter,
    commits: ByLabel,
    commit_seconds: Histogram,
    documents_written: Counter,
    last_commit: Gauge,
    finished: Counter,
    finished_seconds: Histogram,
    aborts: [ByValue<Counter>; 2],
    group_transactions: Histogram,
    locks: Counter,
    lock_handoffs: Counter,
    waits: ByLabel,
    lock_wait_seconds: ByValue<Histogram>,
    wounds: ByLabel,
    roll_forwards: Counter,
    recovery_aborts: [Counter; 2],
    operator_aborts: Counter,
    unlocks: Counter,
    damages: ByValue<Counter>,
    unknowns: Counter,
    outcomes: ByValue<Counter>,
    partitions_dropped: Counter,
    results: ByValue<Counter>,
    systems: Systems,
}

/// The maximum number of labels of transactions.
const MOST_LABELS: usize = 50;

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
        let counts =
            |name, label, values| ByValue::new(values, |value| labelled(name, label, value));
        let aborts = |retried: &'static str| {
            ByValue::new(
                figures::REASONS,
                |reason| counter!(figures::ABORTS, "domain" => domain.clone(), "reason" => reason, "retried" => retried),
            )
        };
        let waited =
            |end| histogram!(figures::LOCK_WAIT_SECONDS, "domain" => domain.clone(), "end" => end);
        Self {
            clock: Arc::new(SystemClock::default()),
            attempts: count(figures::ATTEMPTS),
            commits: ByLabel::new(figures::COMMITS, &domain),
            commit_seconds: spread(figures::COMMIT_SECONDS),
            documents_written: count(figures::DOCUMENTS_WRITTEN),
            last_commit: gauge!(figures::LAST_COMMIT, "domain" => domain.clone()),
            finished: count(figures::FINISHED),
            finished_seconds: spread(figures::FINISHED_SECONDS),
            aborts: [aborts("false"), aborts("true")],
            group_transactions: spread(figures::GROUP_TRANSACTIONS),
            locks: count(figures::LOCKS),
            lock_handoffs: count(figures::LOCK_HANDOFFS),
            waits: ByLabel::new(figures::WAITS, &domain),
            lock_wait_seconds: ByValue::new(figures::ENDS, waited),
            wounds: ByLabel::new(figures::WOUNDS, &domain),
            roll_forwards: count(figures::ROLL_FORWARDS),
            recovery_aborts: either(figures::RECOVERY_ABORTS, "recorded"),
            operator_aborts: count(figures::OPERATOR_ABORTS),
            unlocks: count(figures::UNLOCKS),
            damages: counts(figures::DAMAGES, "cause", figures::CAUSES),
            unknowns: count(figures::UNKNOWNS),
            outcomes: counts(figures::OUTCOMES_TOTAL, "outcome", figures::OUTCOMES),
            partitions_dropped: count(figures::PARTITIONS_DROPPED),
            results: counts(figures::RESULTS_TOTAL, "result", figures::RESULTS),
            systems: Systems::new(&domain),
            domain,
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

    /// Counts these labels of transactions under their own names.
    ///
    /// All other labels count as `other`, a transaction without a label as `none`, and a group of
    /// several labels as `several`. Each label adds three series. At most 50 labels count, the
    /// first ones. Call this where the recorder of [`Metrics::new`] is current.
    #[must_use]
    pub fn with_labels<'l>(mut self, labels: impl IntoIterator<Item = &'l str>) -> Self {
        let labels: Vec<&str> = labels.into_iter().take(MOST_LABELS).collect();
        for series in [&mut self.commits, &mut self.waits, &mut self.wounds] {
            series.add(&self.domain, &labels);
        }
        self
    }

    /// Takes the present load of the domain in this process. Call this every few seconds.
    ///
    /// No event reports these metrics: the lengths of queues, and the sizes of shared requests.
    pub fn sample(&self, domain: &Domain) {
        self.systems.sample(&domain.current_load());
    }

    /// Takes the levels of the outbox. Call this every minute, in one process.
    ///
    /// The levels come from the `backlog` of the outbox, whose scan costs one search.
    pub fn outbox(&self, levels: OutboxLevels) {
        self.systems.outbox(levels);
    }

    /// Takes the number of submitted requests in one state, such as `quarantined`.
    pub fn requests(&self, state: &str, count: usize) {
        self.systems.requests(state, count);
    }

    /// Takes the time for which the oldest undecided request waits.
    ///
    /// `Requests::counts` returns it, with the numbers for [`Metrics::requests`].
    pub fn requests_lag(&self, lag: Duration) {
        self.systems.requests_lag(lag);
    }

    /// Takes the number of avoided nodes, and that of all nodes.
    ///
    /// Requests avoid such nodes.
    ///
    /// `EsStore::nodes_left_out` returns both numbers.
    pub fn nodes(&self, (left_out, all): (usize, usize)) {
        self.systems.nodes(left_out, all);
    }

    /// Counts the result of a call.
    ///
    /// No event reports a result: a transaction that fails with [`ErrorKind::Overloaded`], for
    /// example, never begins.
    pub fn result<T>(&self, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.results.of("committed").increment(1),
            Err(error) => self.failed(error.kind()),
        }
    }

    /// Counts a failed call, like [`Metrics::result`].
    ///
    /// For callers whose errors have a type of their own.
    pub fn failed(&self, kind: ErrorKind) {
        self.results.of(word(kind)).increment(1);
    }

    /// Counts a call that its closure refused. Nothing was changed.
    pub fn refused(&self) {
        self.results.of("refused").increment(1);
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
            Event::Waiting { label, .. } => self.waits.of(label.as_deref()).increment(1),
            Event::WaitEnded { waited, end, .. } => {
                self.lock_wait_seconds.of(end.as_str()).record(*waited);
            }
            Event::Wounded { label, .. } => self.wounds.of(label.as_deref()).increment(1),
            Event::Committed { tid, label, written, .. } => {
                self.commits.of(label.as_deref()).increment(1);
                self.commit_seconds.record(self.since_begin(*tid));
                self.documents_written.increment(as_u64(*written));
                self.last_commit.set(self.clock.wall());
            }
            Event::Aborted { reason, retried, .. } => {
                self.aborts[usize::from(*retried)].of(reason.as_str()).increment(1);
            }
            Event::Unknown { .. } => self.unknowns.increment(1),
            Event::OutcomeKnown { outcome, .. } => {
                self.outcomes.of(word_of_outcome(*outcome)).increment(1);
            }
            Event::Finished { tid } => {
                self.finished.increment(1);
                self.finished_seconds.record(self.since_begin(*tid));
            }
            Event::RolledForward { .. } => self.roll_forwards.increment(1),
            Event::AbortedByRecovery { recorded, .. } => {
                self.recovery_aborts[usize::from(*recorded)].increment(1);
            }
            Event::AbortedByOperator { .. } => self.operator_aborts.increment(1),
            Event::Unlocked { .. } => self.unlocks.increment(1),
            Event::Damaged { cause, .. } => self.damages.of(cause.as_str()).increment(1),
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

fn word_of_outcome(outcome: TransactionOutcome) -> &'static str {
    match outcome {
        TransactionOutcome::Committed { .. } => "committed",
        TransactionOutcome::Aborted => "aborted",
        TransactionOutcome::Forgotten => "forgotten",
        _ => figures::OTHER,
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
        ErrorKind::KeyReused => "key_reused",
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
