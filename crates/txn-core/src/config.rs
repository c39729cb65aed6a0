//! Settings of a domain and of one transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::{Clock, Entropy, SystemClock, SystemEntropy};
use crate::error::{Error, Result};
use crate::event::Observer;
use txn_protocol::ids::MAX_ATTEMPT;
use txn_protocol::rule::Rules;

/// Settings of a [`Domain`](crate::Domain).
///
/// All processes of a domain should have the same lease and attempt timeout. With other values no
/// commit is lost. But a process with a shorter lease takes the transactions of others for dead too
/// early, and aborts them. The figures come from `docs/benchmarks.md`.
///
/// ```
/// use std::time::Duration;
/// use txn_core::Config;
///
/// let config = Config::default()
///     .with_application_name(Some("checkout".to_owned()))
///     .with_timeout(Duration::from_secs(5));
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) lease: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) max_attempts: u16,
    pub(crate) max_documents: usize,
    pub(crate) max_concurrent_transactions: usize,
    pub(crate) max_drift: Duration,
    pub(crate) retention_days: u16,
    pub(crate) janitor_interval: Option<Duration>,
    pub(crate) request_batching: Option<bool>,
    pub(crate) group_commit: Option<bool>,
    pub(crate) application_name: Option<String>,
    pub(crate) process_name: String,
    pub(crate) metrics_address: Option<String>,
    pub(crate) contention_waits: usize,
    pub(crate) write_contention: bool,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) runtime: Option<Handle>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) rules: Rules,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(1),
            attempt_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            max_attempts: 1_000,
            max_documents: 10_000,
            max_concurrent_transactions: 1_024,
            max_drift: Duration::from_secs(60),
            retention_days: 7,
            janitor_interval: Some(Duration::from_secs(10)),
            request_batching: None,
            group_commit: None,
            application_name: None,
            process_name: format!("pid {}", std::process::id()),
            metrics_address: None,
            contention_waits: 1_024,
            write_contention: false,
            observer: None,
            runtime: None,
            clock: Arc::new(SystemClock::default()),
            entropy: Arc::new(SystemEntropy),
            rules: Rules::all(),
        }
    }
}

/// The attempts of a transaction with the same lease.
///
/// Each group takes a number of its oldest member, so at hot documents a transaction has several
/// numbers before it commits. With one attempt per lease, a killed process blocked its documents
/// for eight leases.
const ATTEMPTS_PER_LEASE: u16 = 4;

/// The maximum of `timeout` and `attempt_timeout` together.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// The maximum of `contention_waits`.
const MOST_WAITS: usize = 65_536;

/// The maximum length of a label in bytes.
const LONGEST_LABEL: usize = 64;

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $field:ident: $type:ty;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        })*
    };
}

impl Config {
    setters! {
        /// Sets the time after which other processes recover a lock.
        ///
        /// In this time the record of the lock's holder has not changed, or was missing.
        ///
        /// A short lease releases the documents of a dead process sooner. But other processes then
        /// abort transactions of a process that pauses longer, or whose heartbeats a paused server
        /// delays. A heartbeat writes the record of a running transaction three times per
        /// lease, from half a lease on. The lease doubles every four attempts of a transaction, up
        /// to the attempt timeout. Default: 1 s, at least 10 ms.
        with_lease: lease: Duration;
        /// Sets how long one attempt may take until it sends its commit.
        ///
        /// After this time the attempt releases its locks, even if its closure still runs. A wait
        /// without locks, for a group or for a turn at hot documents, does not count. A long
        /// timeout lets a stuck closure block its documents longer. Default: 10 s; together with
        /// [`Config::with_timeout`] at most 12 hours.
        with_attempt_timeout: attempt_timeout: Duration;
        /// Sets the time limit of a transaction with all its attempts.
        ///
        /// The time ends when the outcome is known.
        ///
        /// A short timeout answers callers sooner, with [`ErrorKind::Conflict`](crate::ErrorKind) or
        /// [`ErrorKind::Unknown`](crate::ErrorKind). After the answer, the locks may be held for a
        /// lease and one request longer. Default: 30 s.
        with_timeout: timeout: Duration;
        /// Sets the maximum number of attempts of one transaction.
        ///
        /// With few attempts a contended transaction fails sooner, although it would commit once it
        /// is the oldest. The timeout usually ends a transaction first. Default: 1,000; at most
        /// 16,384.
        with_max_attempts: max_attempts: u16;
        /// Sets the maximum number of documents that one transaction reads and writes.
        ///
        /// All documents of a transaction are locked at the same time, and their contents are in
        /// one record, so large transactions block others longer. Default: 10,000.
        with_max_documents: max_documents: usize;
        /// Sets the maximum number of concurrent transactions of this process.
        ///
        /// Further transactions wait for a quarter of their timeout, and then fail with
        /// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded). If 16 times as many wait, they
        /// fail at once. Nested transactions and those of
        /// [`Domain::begin`](crate::Domain::begin) do not count. Default: 1,024.
        with_max_concurrent_transactions: max_concurrent_transactions: usize;
        /// Sets the maximum clock difference between the process and the server.
        ///
        /// Beyond this difference the process refuses to write. The engine also refuses a commit
        /// over a version that is further in the future. A timestamp becomes readable
        /// ([`History::at`](crate::History::at)) after this time, so a small value makes past reads
        /// fresher and stops processes with worse clocks. Default: 60 s.
        with_max_drift: max_drift: Duration;
        /// Sets the number of past days with records in the transaction table.
        ///
        /// The records of today are kept, too.
        ///
        /// [`Domain::outcome`](crate::Domain::outcome) answers for this time. Each day is a
        /// collection of its own, so each further day costs one shard and the records of a day.
        /// Default: 7, at least 1.
        with_retention_days: retention_days: u16;
        /// Sets how often the janitor scans for transactions of dead processes.
        ///
        /// Usually one process of the domain scans at a time. A short interval releases documents
        /// sooner that no other transaction wants, at the cost of one scan of each collection. With
        /// `None` this process never scans. It is then missing in the list of processes, and writes
        /// no waits for locks. Default: 10 s.
        with_janitor_interval: janitor_interval: Option<Duration>;
        /// Sets the runtime for tasks of callers in current-thread runtimes.
        ///
        /// The tasks are commits, applies, heartbeats and shared requests.
        ///
        /// A current-thread runtime runs its tasks only within `block_on`. A multi-thread runtime
        /// runs the tasks of its callers on its own threads. `None`, the default, takes the runtime
        /// in which the domain is opened, if that is a multi-thread runtime. Otherwise each task
        /// runs in the runtime of its caller. While that runtime rests, its last commits stay
        /// unapplied, and transactions of other runtimes wait for their documents.
        ///
        /// Set a runtime if several current-thread runtimes use one domain. The cost is one change
        /// of threads per task. The runtime needs its time driver, and must run until the domain is
        /// shut down. If the runtime ends earlier, later tasks run in the runtimes of their
        /// callers.
        with_runtime: runtime: Option<Handle>;
        /// Sets whether running transactions of this process share requests to the store.
        ///
        /// With 64 clients on one server, shared requests reach 1.05 of the throughput of plain
        /// clients, and own requests 0.23. One client sees no difference. A slow request delays all
        /// transactions that share the request. `None`, the default, follows
        /// [`Limits::batches_requests`](txn_store::Limits::batches_requests): yes on servers, no in
        /// embedded stores.
        with_request_batching: request_batching: Option<bool>;
        /// Sets whether the process merges concurrent transactions into groups.
        ///
        /// The writers of a group that are linked by documents have one commit.
        ///
        /// Clients of a hot document then share its writes. With groups, 64 clients on ten
        /// documents reach 41 to 59 times the throughput of plain clients that retry, and 0.35
        /// times without groups. Closures in groups run more often, because a transaction runs
        /// again on the result of the members before it. A single client sees no difference.
        /// `None`, the default, follows
        /// [`Limits::merges_transactions`](txn_store::Limits::merges_transactions): yes on servers
        /// and in files, no in memory.
        with_group_commit: group_commit: Option<bool>;
        /// Sets the name of the application, for operators who read records. Default: none.
        with_application_name: application_name: Option<String>;
        /// Sets the name of this process, for operators who read records. Default: the process id.
        with_process_name: process_name: String;
        /// Sets the address of this process's metrics.
        ///
        /// Operators who list the processes see the address.
        with_metrics_address: metrics_address: Option<String>;
        /// Sets how many ended waits for locks this process remembers.
        ///
        /// [`Admin::contention`](crate::Admin::contention) returns them. A wait takes about 300
        /// bytes. With 0 the process remembers none. Default: 1,024; at most 65,536.
        with_contention_waits: contention_waits: usize;
        /// Sets whether this process writes its last lock waits into the domain.
        ///
        /// Operators can then read the waits of all processes, even after their end. Once per
        /// janitor interval the process writes one document with its present waits and its last 500
        /// past ones, if there are present or new ones. No commit waits for this write. Needs a
        /// janitor interval. Default: no.
        with_write_contention: write_contention: bool;
        /// Sets the receiver of the domain's events, for logs and metrics.
        ///
        /// The engine calls the observer while it works, so a slow observer slows transactions.
        with_observer: observer: Option<Arc<dyn Observer>>;
        /// Sets the source of time. Tests may set their own.
        with_clock: clock: Arc<dyn Clock>;
        /// Sets the source of randomness. Tests may set their own.
        with_entropy: entropy: Arc<dyn Entropy>;
    }

    /// Returns the lease ([`Config::with_lease`]).
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns the timeout of one attempt ([`Config::with_attempt_timeout`]).
    #[must_use]
    pub fn attempt_timeout(&self) -> Duration {
        self.attempt_timeout
    }

    /// Returns the timeout of transactions ([`Config::with_timeout`]).
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the permitted difference of clocks ([`Config::with_max_drift`]).
    #[must_use]
    pub fn max_drift(&self) -> Duration {
        self.max_drift
    }

    /// Returns whether transactions are merged; `None` follows the store
    /// ([`Config::with_group_commit`]).
    #[must_use]
    pub fn group_commit(&self) -> Option<bool> {
        self.group_commit
    }

    /// Returns the name of this process ([`Config::with_process_name`]).
    #[must_use]
    pub fn process_name(&self) -> &str {
        &self.process_name
    }

    /// Returns the receiver of events ([`Config::with_observer`]).
    ///
    /// An outer observer can pass its events on to this receiver.
    #[must_use]
    pub fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.as_ref()
    }

    /// Returns the name of the application ([`Config::with_application_name`]).
    #[must_use]
    pub fn application_name(&self) -> Option<&str> {
        self.application_name.as_deref()
    }

    /// Returns the source of time.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns the source of time, for tasks.
    #[must_use]
    pub fn shared_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Returns the source of randomness.
    #[must_use]
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.entropy
    }

    /// Leaves rules of the protocol out.
    ///
    /// A test can thus show that it detects the omission.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse =
            |why: &str| Err(Error::invalid(format!("this configuration cannot work: {why}")));
        if self.lease < Duration::from_millis(10) {
            return refuse("the lease is under 10 ms");
        }
        if self.attempt_timeout < self.lease {
            return refuse("attempt_timeout is shorter than the lease");
        }
        if self.max_attempts == 0 || self.max_attempts > MAX_ATTEMPT + 1 {
            return refuse("max_attempts must be between 1 and 16,384");
        }
        if self.max_documents == 0 {
            return refuse("max_documents is 0");
        }
        if self.max_concurrent_transactions == 0 {
            return refuse("max_concurrent_transactions is 0");
        }
        if self.contention_waits > MOST_WAITS {
            return refuse("contention_waits must be at most 65,536");
        }
        if self.retention_days == 0 {
            return refuse("retention_days must be at least 1");
        }
        self.check_wait(self.timeout)
    }

    /// Refuses a wait that is too long.
    ///
    /// A transaction must end long before its record is dropped.
    pub(crate) fn check_wait(&self, timeout: Duration) -> Result<()> {
        if timeout.saturating_add(self.attempt_timeout) <= LONGEST {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a timeout of {timeout:?} with an attempt timeout of {:?} is too long: together at most 12 hours, so \
             that everything ends long before its record may be dropped",
            self.attempt_timeout
        )))
    }

    /// How long a transaction with these options may take.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for options that cannot work.
    pub(crate) fn timeout_of(&self, options: &Options) -> Result<Duration> {
        options.check_label()?;
        let timeout = options.timeout.unwrap_or(self.timeout);
        self.check_wait(timeout)?;
        Ok(timeout)
    }

    /// The lease of an attempt. The lease doubles after some attempts, because on an overloaded
    /// cluster processes would otherwise abort each other.
    pub(crate) fn lease_of(&self, attempt: u16) -> Duration {
        let doubled = self.lease.saturating_mul(1 << (attempt / ATTEMPTS_PER_LEASE).min(16));
        doubled.min(self.attempt_timeout)
    }
}

/// The point at which a transaction returns to its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitFor {
    /// The commit is durable, and visible through this crate. Each transaction and reader of this
    /// crate sees the commit. A task of the domain applies the documents afterwards
    /// ([`Config::with_runtime`]).
    #[default]
    Commit,
    /// The documents are applied: plain GETs see the commit.
    Apply,
    /// The documents are applied and their collections refreshed. Plain searches see the commit.
    Refresh,
}

/// When a transaction locks its documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// Optimistic: at the commit, alone or in a group ([`Config::with_group_commit`]).
    ///
    /// After eight failed attempts the transaction leaves the groups, and locks as with
    /// [`LockMode::AtRead`]. Without groups it does so after one.
    #[default]
    AtCommit,
    /// As [`LockMode::AtCommit`], but never in a group.
    ///
    /// The [commit version](crate::Receipt::commit_version) then belongs to this transaction alone.
    AtCommitUngrouped,
    /// Pessimistic: locks each document at its read, from the first attempt on.
    ///
    /// Never in a group. Suits expensive closures on contended documents, which then rarely run
    /// twice. Transactions with [`Options::with_read_only`] ignore this mode.
    AtRead,
}

/// The treatment of documents that the transaction only read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Checks that they have not changed. Costs one request for all of them.
    #[default]
    Validate,
    /// Locks them, for two more writes per document. Readers of one document wait for each other.
    ///
    /// The transaction then stays serializable even if a primary crashes before it has acknowledged
    /// a write that the transaction read.
    Lock,
}

/// Settings of one transaction.
///
/// ```
/// use txn_core::{Options, WaitFor};
///
/// let options = Options::default().with_label("checkout").with_wait_for(WaitFor::Apply);
/// # let _ = options;
/// ```
#[derive(Clone, Default)]
pub struct Options {
    pub(crate) lock_mode: LockMode,
    pub(crate) read_mode: ReadMode,
    pub(crate) read_only: bool,
    pub(crate) own_record: bool,
    pub(crate) wait_for: WaitFor,
    pub(crate) timeout: Option<Duration>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) metadata: Option<String>,
}

/// Leaves the metadata of the caller out of logs.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock_mode, read_mode, read_only, own_record, .. } = self;
        let Self { wait_for, timeout, label, metadata, .. } = self;
        f.debug_struct("Options")
            .field("lock_mode", lock_mode)
            .field("read_mode", read_mode)
            .field("read_only", read_only)
            .field("own_record", own_record)
            .field("wait_for", wait_for)
            .field("timeout", timeout)
            .field("label", label)
            .field("metadata_bytes", &metadata.as_ref().map(String::len))
            .finish()
    }
}

impl Options {
    setters! {
        /// Sets when the transaction locks its documents.
        with_lock_mode: lock_mode: LockMode;
        /// Sets the treatment of documents that are only read.
        with_read_mode: read_mode: ReadMode;
        /// Sets whether the transaction refuses writes.
        with_read_only: read_only: bool;
        /// Sets whether the transaction has a record that no other transaction shares.
        ///
        /// [`Transaction::tid`](crate::Transaction::tid) then returns the id for
        /// [`Domain::outcome`](crate::Domain::outcome), before the commit. Such a transaction joins
        /// no group ([`Config::with_group_commit`]), and a `put` of one document costs two more
        /// round trips. Default: no.
        with_own_record: own_record: bool;
        /// Sets the point at which the transaction returns.
        with_wait_for: wait_for: WaitFor;
        /// Replaces [`Config::with_timeout`], within the same bound.
        with_timeout: timeout: Option<Duration>;
        /// Sets a JSON value that the record keeps for operators.
        ///
        /// The programs of operators can read the value, too. The value is never logged.
        ///
        /// A transaction with metadata always has a record, so a `put` of one document costs two
        /// more round trips.
        with_metadata: metadata: Option<String>;
    }

    /// Sets a name for what the transaction does, such as `checkout`.
    ///
    /// Records, events, metrics and errors of waiting transactions carry the label. A label has 1
    /// to 64 of the characters `a-z`, `A-Z`, `0-9` and `-_.:/`. Use few labels, and no ids.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Whether every read locks its document. Read-only transactions ignore the mode.
    pub(crate) fn locks_at_read(&self) -> bool {
        self.lock_mode == LockMode::AtRead && !self.read_only
    }

    fn check_label(&self) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        match self.label.as_deref() {
            Some(label) if label.is_empty() || label.len() > LONGEST_LABEL => {
                let message = format!("a label has 1 to {LONGEST_LABEL} bytes");
                Err(Error::invalid(message))
            }
            // The message leaves the label out: it may hold content of the caller.
            Some(label) if !label.chars().all(is_plain) => {
                Err(Error::invalid("a label consists of letters, digits and `-_.:/`"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_doubles_every_four_attempts() {
        let config = Config::default();
        let seconds = |attempt| config.lease_of(attempt).as_secs();
        assert_eq!([0, 3, 4, 7, 8, 12].map(seconds), [1, 1, 2, 2, 4, 8]);
        assert_eq!([16, 1_000, u16::MAX].map(seconds), [10; 3]);
    }
}
