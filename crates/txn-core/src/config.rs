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
/// All processes of a domain should have the same `lease` and `attempt_timeout`. Different values
/// break nothing. A process with a shorter lease recovers the transactions of the other processes
/// too early, and aborts transactions that are alive.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How long a lock and its record stay unchanged before another process recovers them.
    ///
    /// A short lease releases the documents of a dead process sooner, and aborts transactions of a
    /// process that pauses longer, for example in a garbage collection of the server. A heartbeat
    /// writes the record of a running transaction three times per lease, from half a lease on. The
    /// lease doubles with each attempt of a transaction, up to `attempt_timeout`. Default: 1 s,
    /// at least 10 ms.
    pub lease: Duration,
    /// How long one attempt may take until it sends its commit.
    ///
    /// After this time the attempt releases its locks, even if its closure still runs. A long
    /// timeout lets a stuck closure block its documents longer. Default: 10 s; together with
    /// `timeout` at most 12 hours.
    pub attempt_timeout: Duration,
    /// How long a transaction with all its attempts may take until its outcome is known.
    ///
    /// A short timeout answers callers sooner, with [`ErrorKind::Conflict`](crate::ErrorKind) or
    /// [`ErrorKind::Unknown`](crate::ErrorKind). Default: 30 s.
    pub timeout: Duration,
    /// The maximum number of attempts of one transaction. Default: 1,000; at most 16,384.
    pub max_attempts: u16,
    /// The maximum number of documents that one transaction reads and writes.
    ///
    /// All documents of a transaction are locked at the same time, and their contents are in one
    /// record. Default: 10,000.
    pub max_documents: usize,
    /// The maximum number of transactions that run at the same time in this process.
    ///
    /// Further transactions wait for a quarter of their timeout, and then fail with
    /// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded). Nested transactions and those of
    /// [`Domain::begin`](crate::Domain::begin) do not count. Default: 1,024.
    pub max_concurrent_transactions: usize,
    /// The maximum difference between the wall clock of the process and the clock of the server.
    ///
    /// Beyond this difference the process refuses to write. The engine also refuses a commit over a
    /// version that is further in the future. A timestamp becomes readable
    /// ([`Domain::snapshot_at`](crate::Domain::snapshot_at)) after this time. Default: 60 s.
    pub max_drift: Duration,
    /// For how many days before today the transaction table keeps its records.
    ///
    /// [`Domain::outcome`](crate::Domain::outcome) answers for this time. Each day is a collection
    /// of its own. Default: 7, at least 1.
    pub retention_days: u16,
    /// How often the janitor scans the domain for transactions of dead processes.
    ///
    /// One process of the domain scans at a time. A short interval releases documents sooner that
    /// no other transaction wants, at the cost of one scan. With `None` this process never scans.
    /// Default: 10 s.
    pub janitor_interval: Option<Duration>,
    /// Whether running transactions of this process share requests to the store.
    ///
    /// Shared requests give more transactions per second if many transactions run at the same time,
    /// and change nothing for one client. A slow request delays all transactions that share the
    /// request. `None`, the default, follows
    /// [`Limits::batches_requests`](crate::store::Limits::batches_requests): yes on servers, no in
    /// embedded stores.
    pub request_batching: Option<bool>,
    /// Whether the process merges concurrent transactions into groups, each with one commit.
    ///
    /// Clients of a hot document then share its writes. Closures run more often, because a
    /// transaction runs again on the result of the members before it. A single client sees no
    /// difference. `None`, the default, follows
    /// [`Limits::merges_transactions`](crate::store::Limits::merges_transactions): yes on servers
    /// and in files, no in memory.
    pub group_commit: Option<bool>,
    /// The name of the application, for operators who read records.
    pub application_name: Option<String>,
    /// The name of this process, for operators who read records. Default: the process id.
    pub process_name: String,
    /// The address of this process's metrics, for operators who list the processes of the domain.
    pub metrics_address: Option<String>,
    /// How many ended waits for locks this process remembers.
    ///
    /// [`Admin::contention`](crate::Admin::contention) returns them. A wait takes about 300 bytes.
    /// With 0 the process remembers none. Default: 1,024; at most 65,536.
    pub contention_waits: usize,
    /// Whether this process writes its last waits for locks into the domain.
    ///
    /// Operators can then read the waits of all processes, even after their end. Once per
    /// `janitor_interval` the process writes one document with its last 500 waits, if there are new
    /// ones. No commit waits for this write. Default: no.
    pub write_contention: bool,
    /// Receives the events of the domain, for logs and metrics.
    pub observer: Option<Arc<dyn Observer>>,
    /// The runtime for tasks of callers in current-thread runtimes: commits, applies, heartbeats
    /// and shared requests.
    ///
    /// A current-thread runtime runs its tasks only within `block_on`. A multi-thread runtime runs
    /// the tasks of its callers on its own threads. `None`, the default, takes the runtime in which
    /// the domain is opened, if that is a multi-thread runtime. Otherwise each task runs in the
    /// runtime of its caller. While that runtime rests, its last commits stay unapplied, and
    /// transactions of other runtimes wait for their documents.
    ///
    /// Set a runtime if several current-thread runtimes use one domain. The cost is one change of
    /// threads per task. The runtime needs its time driver, and must run until the domain is shut
    /// down. If the runtime ends earlier, later tasks run in the runtimes of their callers.
    pub runtime: Option<Handle>,
    /// The source of time. Tests may set their own.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness. Tests may set their own.
    pub entropy: Arc<dyn Entropy>,
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
        /// Sets [`Config::lease`].
        with_lease: lease: Duration;
        /// Sets [`Config::attempt_timeout`].
        with_attempt_timeout: attempt_timeout: Duration;
        /// Sets [`Config::timeout`].
        with_timeout: timeout: Duration;
        /// Sets [`Config::max_attempts`].
        with_max_attempts: max_attempts: u16;
        /// Sets [`Config::max_documents`].
        with_max_documents: max_documents: usize;
        /// Sets [`Config::max_concurrent_transactions`].
        with_max_concurrent_transactions: max_concurrent_transactions: usize;
        /// Sets [`Config::max_drift`].
        with_max_drift: max_drift: Duration;
        /// Sets [`Config::retention_days`].
        with_retention_days: retention_days: u16;
        /// Sets [`Config::janitor_interval`].
        with_janitor_interval: janitor_interval: Option<Duration>;
        /// Sets [`Config::runtime`].
        with_runtime: runtime: Option<Handle>;
        /// Sets [`Config::request_batching`].
        with_request_batching: request_batching: Option<bool>;
        /// Sets [`Config::group_commit`].
        with_group_commit: group_commit: Option<bool>;
        /// Sets [`Config::application_name`].
        with_application_name: application_name: Option<String>;
        /// Sets [`Config::process_name`].
        with_process_name: process_name: String;
        /// Sets [`Config::metrics_address`].
        with_metrics_address: metrics_address: Option<String>;
        /// Sets [`Config::contention_waits`].
        with_contention_waits: contention_waits: usize;
        /// Sets [`Config::write_contention`].
        with_write_contention: write_contention: bool;
        /// Sets [`Config::observer`].
        with_observer: observer: Option<Arc<dyn Observer>>;
        /// Sets [`Config::clock`].
        with_clock: clock: Arc<dyn Clock>;
        /// Sets [`Config::entropy`].
        with_entropy: entropy: Arc<dyn Entropy>;
    }

    /// Leaves rules of the protocol out, so that tests can show that they detect it.
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

    /// Refuses a wait that is too long: a transaction must end long before its record is dropped.
    pub(crate) fn check_wait(&self, deadline: Duration) -> Result<()> {
        if deadline.saturating_add(self.attempt_timeout) <= LONGEST {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a timeout of {deadline:?} with an attempt timeout of {:?} is too long: together at most 12 hours, so \
             that everything ends long before its record may be dropped",
            self.attempt_timeout
        )))
    }

    /// How long a transaction with these options may take.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for options that cannot work.
    pub(crate) fn deadline_of(&self, options: &Options) -> Result<Duration> {
        options.check_label()?;
        let deadline = options.timeout.unwrap_or(self.timeout);
        self.check_wait(deadline)?;
        Ok(deadline)
    }

    /// The lease of an attempt. The lease doubles, because on an overloaded cluster processes would
    /// otherwise abort each other.
    pub(crate) fn lease_of(&self, attempt: u16) -> Duration {
        let doubled = self.lease.saturating_mul(1 << attempt.min(16));
        doubled.min(self.attempt_timeout)
    }
}

/// The point at which a transaction returns to its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitFor {
    /// The commit is durable, and each transaction and reader of this crate sees it. A task of the
    /// domain applies the documents afterwards ([`Config::runtime`]).
    #[default]
    Commit,
    /// The documents are applied: plain GETs see the commit.
    Apply,
    /// The documents are applied and their collections refreshed: plain searches see the commit.
    Refresh,
}

/// When a transaction locks its documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// Optimistic: at the commit, alone or in a group ([`Config::group_commit`]).
    ///
    /// After conflicts the transaction leaves the groups, and locks as with [`LockMode::AtRead`].
    #[default]
    AtCommit,
    /// As [`LockMode::AtCommit`], but never in a group.
    ///
    /// The [commit version](crate::Receipt::commit_version) then belongs to this transaction alone.
    AtCommitUngrouped,
    /// Pessimistic: each document when the transaction reads it, from the first attempt on.
    ///
    /// Never in a group. Suits expensive closures on contended documents, which then rarely run
    /// twice. A read-only transaction of [`Domain::run`](crate::Domain::run) ignores this mode.
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
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// When the transaction locks its documents.
    pub lock_mode: LockMode,
    /// The treatment of documents that are only read.
    pub read_mode: ReadMode,
    /// Whether the transaction refuses writes.
    pub read_only: bool,
    /// The point at which the transaction returns.
    pub wait_for: WaitFor,
    /// Replaces [`Config::timeout`], within the same bound.
    pub timeout: Option<Duration>,
    /// A name for what the transaction does, such as `checkout`.
    ///
    /// Records, events, metrics and errors of waiting transactions carry the label. A label has 1
    /// to 64 of the characters `a-z`, `A-Z`, `0-9` and `-_.:/`. Use few labels, and no ids.
    pub label: Option<Arc<str>>,
    /// A JSON value that the record keeps for operators and their programs. Never logged.
    pub metadata: Option<String>,
}

/// Leaves the metadata of the caller out of logs.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock_mode, read_mode, read_only, .. } = self;
        let Self { wait_for, timeout, label, metadata, .. } = self;
        f.debug_struct("Options")
            .field("lock_mode", lock_mode)
            .field("read_mode", read_mode)
            .field("read_only", read_only)
            .field("wait_for", wait_for)
            .field("timeout", timeout)
            .field("label", label)
            .field("metadata_bytes", &metadata.as_ref().map(String::len))
            .finish()
    }
}

impl Options {
    setters! {
        /// Sets [`Options::lock_mode`].
        with_lock_mode: lock_mode: LockMode;
        /// Sets [`Options::read_mode`].
        with_read_mode: read_mode: ReadMode;
        /// Sets [`Options::read_only`].
        with_read_only: read_only: bool;
        /// Sets [`Options::wait_for`].
        with_wait_for: wait_for: WaitFor;
        /// Sets [`Options::timeout`].
        with_timeout: timeout: Option<Duration>;
        /// Sets [`Options::metadata`].
        with_metadata: metadata: Option<String>;
    }

    /// Sets [`Options::label`].
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
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
