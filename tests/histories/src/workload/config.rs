//! Settings and end of a workload.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::history::Model;

/// Settings of a [`Workload`](crate::Workload).
///
/// The defaults are those of a small workload with many conflicts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkloadConfig {
    /// The type of the data.
    pub model: Model,
    /// The collection, which is made if it is missing.
    ///
    /// The id of a document consists of [`WorkloadConfig::prefix`] and the key.
    pub collection: String,
    /// The prefix of the ids of all documents. Each run in a collection needs a prefix of its own.
    pub prefix: String,
    /// The seed of the plans. Equal seeds give equal plans, but not equal schedules.
    pub seed: u64,
    /// How many transactions run at a time, spread evenly over the processes.
    pub workers: usize,
    /// How many keys are in use at a time.
    pub keys: usize,
    /// The skew of keys. Key number n is used about n^-skew as often as the first.
    pub skew: f64,
    /// The maximum number of operations of one transaction; at least 1.
    pub max_operations: usize,
    /// The planned writes after which a new key replaces a key. A limit keeps lists short.
    pub max_writes_per_key: u32,
    /// The share of operations that read.
    pub reads: f64,
    /// The share of transactions that are read-only, by [`txn_core::Options::with_read_only`].
    pub read_only: f64,
    /// The share of single reads by [`txn_core::Reader::verified`].
    pub verified_reads: f64,
    /// The share of transactions that lock their reads.
    pub lock_reads: f64,
    /// The share of transactions that lock at each read.
    pub pessimistic: f64,
    /// The share of transactions that end with an error of their own.
    ///
    /// These transactions read and write before the error.
    pub given_up: f64,
    /// The share of transactions with a caller that drops the future.
    pub abandoned: f64,
    /// The longest pause of a transaction before its commit.
    pub max_pause: Duration,
    /// How long one transaction may take, with all its attempts.
    pub timeout: Duration,
}

impl WorkloadConfig {
    /// The default settings for a model.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self {
            model,
            collection: "histories".to_owned(),
            prefix: "key".to_owned(),
            seed: 0,
            workers: 8,
            keys: 6,
            skew: 0.8,
            max_operations: 6,
            max_writes_per_key: match model {
                Model::ListAppend => 64,
                // Registers do not grow.
                Model::Register => u32::MAX,
            },
            reads: 0.5,
            read_only: 0.15,
            verified_reads: 0.1,
            lock_reads: 0.2,
            pessimistic: 0.2,
            given_up: 0.0,
            abandoned: 0.0,
            max_pause: Duration::from_millis(5),
            timeout: Duration::from_secs(30),
        }
    }
}

macro_rules! setters {
    ($($name:ident: $field:ident: $type:ty;)*) => {
        impl WorkloadConfig {$(
            #[doc = concat!("Sets [`WorkloadConfig::", stringify!($field), "`].")]
            #[must_use]
            pub fn $name(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*}
    };
}

setters! {
    with_collection: collection: String;
    with_prefix: prefix: String;
    with_seed: seed: u64;
    with_workers: workers: usize;
    with_keys: keys: usize;
    with_skew: skew: f64;
    with_max_operations: max_operations: usize;
    with_max_writes_per_key: max_writes_per_key: u32;
    with_reads: reads: f64;
    with_read_only: read_only: f64;
    with_verified_reads: verified_reads: f64;
    with_lock_reads: lock_reads: f64;
    with_pessimistic: pessimistic: f64;
    with_given_up: given_up: f64;
    with_abandoned: abandoned: f64;
    with_max_pause: max_pause: Duration;
    with_timeout: timeout: Duration;
}

/// The end of a run.
///
/// No transaction begins after the first of these limits.
///
/// The run waits for transactions under way.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stop {
    /// The number of transactions that were begun.
    pub transactions: Option<u64>,
    /// The duration of the run.
    pub duration: Option<Duration>,
    /// A token that the caller cancels.
    pub token: Option<CancellationToken>,
}

impl Stop {
    /// Adds an end after this number of transactions.
    #[must_use]
    pub fn after_transactions(mut self, transactions: u64) -> Self {
        self.transactions = Some(transactions);
        self
    }

    /// Adds an end after this time.
    #[must_use]
    pub fn after(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Adds an end at the cancellation of the token.
    #[must_use]
    pub fn when(mut self, token: CancellationToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Whether the end is reached, after `begun` transactions.
    pub(super) fn is_reached(&self, began: Instant, begun: u64) -> bool {
        self.transactions.is_some_and(|most| begun >= most)
            || self.duration.is_some_and(|longest| began.elapsed() >= longest)
            || self.token.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}
