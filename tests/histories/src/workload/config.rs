//! What a workload does, and until when.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::history::Model;

/// Settings of a [`Workload`](crate::Workload). The defaults are those of a small, contended one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkloadConfig {
    /// What the transactions do.
    pub model: Model,
    /// The collection: made if it is missing. Its documents are named by [`WorkloadConfig::prefix`] and the key.
    pub collection: String,
    /// The beginning of the ids of all documents. Another run in the same collection needs another one.
    pub prefix: String,
    /// Where the dice of the plans begin. What is planned is repeated, how it runs is not.
    pub seed: u64,
    /// How many transactions are under way at a time, spread evenly over the processes.
    pub workers: usize,
    /// How many keys are in use at a time.
    pub keys: usize,
    /// How uneven: key number n is used about n^-skew as often as the first.
    pub skew: f64,
    /// Most operations of one transaction; at least 1.
    pub max_operations: usize,
    /// After so many planned writes a key is replaced by a new one; keeps lists short.
    pub max_writes_per_key: u32,
    /// The share of operations that read.
    pub reads: f64,
    /// The share of transactions that are read-only, by [`txn_core::Options::read_only`].
    pub read_only: f64,
    /// The share of single reads by [`txn_core::Reader::verified`].
    pub verified_reads: f64,
    /// The share of transactions that lock what they read.
    pub lock_reads: f64,
    /// The share of transactions that lock at each read.
    pub pessimistic: f64,
    /// The share of transactions that read, write, and end with an error of their own.
    pub given_up: f64,
    /// The share of transactions whose caller goes away while they are under way.
    pub abandoned: f64,
    /// The longest that a transaction thinks before it commits.
    pub max_pause: Duration,
    /// How long one transaction may take, with all its attempts.
    pub deadline: Duration,
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
            deadline: Duration::from_secs(30),
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
    with_deadline: deadline: Duration;
}

/// When no new transactions begin any more: at the first of these. Those under way are waited for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stop {
    /// After so many transactions were begun.
    pub transactions: Option<u64>,
    /// After so much time.
    pub duration: Option<Duration>,
    /// When somebody says so.
    pub token: Option<CancellationToken>,
}

impl Stop {
    /// Also after so many transactions were begun.
    #[must_use]
    pub fn after_transactions(mut self, transactions: u64) -> Self {
        self.transactions = Some(transactions);
        self
    }

    /// Also after so much time.
    #[must_use]
    pub fn after(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Also when the token is cancelled.
    #[must_use]
    pub fn when(mut self, token: CancellationToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Whether it is time, `begun` transactions after it began.
    pub(super) fn is_reached(&self, began: Instant, begun: u64) -> bool {
        self.transactions.is_some_and(|most| begun >= most)
            || self.duration.is_some_and(|longest| began.elapsed() >= longest)
            || self.token.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}
