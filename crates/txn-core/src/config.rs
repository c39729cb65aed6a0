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

/// Settings of a [`Domain`](crate::Domain). All processes of a domain should agree on `lease` and
/// `transaction_limit`; nothing breaks if they don't, but transactions of the hastier ones are taken
/// for dead later and those of the others earlier.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How long a lock and its record may stand unchanged before an observer takes their owner for
    /// dead. Doubles with each attempt up to `transaction_limit`. Default 1 s.
    pub lease: Duration,
    /// How long one attempt may take until its commit is sent. Default 10 s; with `deadline` at most 12 hours.
    pub transaction_limit: Duration,
    /// How long a transaction with all its attempts may take until its commit is known. Default 30 s.
    pub deadline: Duration,
    /// Most attempts of one transaction. Default 1,000; at most 16,384.
    pub max_attempts: u16,
    /// Most documents that one transaction may read and write. Default 10,000.
    pub max_documents: usize,
    /// Most transactions that run at once in this process; others wait for their turn, a quarter of their deadline at most, and end with
    /// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded) then. Those that are stepped through by hand, and those inside of others, do not
    /// count. Default 1,024.
    pub max_running: usize,
    /// How far the wall clock of a process may be from the server's: beyond it every write is refused. A commit over a version that lies
    /// further in the future is refused, too. A moment of the past can be read this long after it. Default 60 s.
    pub max_drift: Duration,
    /// For how many days before today records are kept. Default 7, at least 1.
    pub retention_days: u16,
    /// How often the janitor task looks for forgotten transactions; `None` runs no such task. The processes of a domain
    /// take turns, so that the domain is looked through about once in this time. Default 10 s.
    pub janitor_interval: Option<Duration>,
    /// Whether the operations of all running transactions of this process share requests to the store: more transactions per
    /// second where many run at once, no difference where one does. A request that is slow keeps all those waiting
    /// whose operations are in it. `None`, the default, does as the store says
    /// ([`Limits::shares_requests`](crate::store::Limits::shares_requests)): on servers yes, in this process no.
    pub shared_requests: Option<bool>,
    /// Whether transactions of this process that want the same documents, or run at the same time,
    /// are composed into one: in memory, one after the other, and committed together. Many clients
    /// of a hot document then share its writes instead of waiting for each other; a transaction
    /// that is alone goes as it always did. Closures may be called more often. `None`, the default,
    /// does as the store says
    /// ([`Limits::merges_transactions`](crate::store::Limits::merges_transactions)): on servers and
    /// in files yes, in memory no.
    pub groups: Option<bool>,
    /// A name of the application, kept in its records for people.
    pub application: Option<String>,
    /// A name of this process, kept in its records for people. Default: the process id.
    pub coordinator: String,
    /// Who is told of events, for logs and figures. It observes, and changes nothing.
    pub observer: Option<Arc<dyn Observer>>,
    /// The runtime for tasks of callers in current-thread runtimes: commits, applies, heartbeats and
    /// shared requests.
    ///
    /// A current-thread runtime runs its tasks only within `block_on`; a multi-thread runtime has threads
    /// of its own, and runs the tasks of its callers itself. `None`, the default, takes the runtime in
    /// which the domain is opened, if that is a multi-thread one. If it is not, each task runs in the
    /// runtime of its caller. If that rests, its last commits stay unapplied, and transactions of other
    /// runtimes that want the same documents wait.
    ///
    /// Set it if several current-thread runtimes use one domain. The cost is a change of threads for each
    /// task. The runtime needs its time driver, and must be driven until the domain is shut down. If it
    /// ends earlier, later tasks run in the runtimes of their callers.
    pub runtime: Option<Handle>,
    /// Where time comes from. Tests may put a clock of their own here.
    pub clock: Arc<dyn Clock>,
    /// Where randomness comes from. Tests may put a source of their own here.
    pub entropy: Arc<dyn Entropy>,
    pub(crate) rules: Rules,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(1),
            transaction_limit: Duration::from_secs(10),
            deadline: Duration::from_secs(30),
            max_attempts: 1_000,
            max_documents: 10_000,
            max_running: 1_024,
            max_drift: Duration::from_secs(60),
            retention_days: 7,
            janitor_interval: Some(Duration::from_secs(10)),
            shared_requests: None,
            groups: None,
            application: None,
            coordinator: format!("pid {}", std::process::id()),
            observer: None,
            runtime: None,
            clock: Arc::new(SystemClock::default()),
            entropy: Arc::new(SystemEntropy),
            rules: Rules::all(),
        }
    }
}

/// Deadline and transaction limit together.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

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
        /// Sets [`Config::transaction_limit`].
        with_transaction_limit: transaction_limit: Duration;
        /// Sets [`Config::deadline`].
        with_deadline: deadline: Duration;
        /// Sets [`Config::max_attempts`].
        with_max_attempts: max_attempts: u16;
        /// Sets [`Config::max_documents`].
        with_max_documents: max_documents: usize;
        /// Sets [`Config::max_running`].
        with_max_running: max_running: usize;
        /// Sets [`Config::max_drift`].
        with_max_drift: max_drift: Duration;
        /// Sets [`Config::retention_days`].
        with_retention_days: retention_days: u16;
        /// Sets [`Config::janitor_interval`].
        with_janitor_interval: janitor_interval: Option<Duration>;
        /// Sets [`Config::runtime`].
        with_runtime: runtime: Option<Handle>;
        /// Sets [`Config::shared_requests`].
        with_shared_requests: shared_requests: Option<bool>;
        /// Sets [`Config::groups`].
        with_groups: groups: Option<bool>;
        /// Sets [`Config::application`].
        with_application: application: Option<String>;
        /// Sets [`Config::coordinator`].
        with_coordinator: coordinator: String;
        /// Sets [`Config::observer`].
        with_observer: observer: Option<Arc<dyn Observer>>;
        /// Sets [`Config::clock`].
        with_clock: clock: Arc<dyn Clock>;
        /// Sets [`Config::entropy`].
        with_entropy: entropy: Arc<dyn Entropy>;
    }

    /// Sets which rules of the protocol stand, for tests that look whether they notice.
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
        if self.transaction_limit < self.lease {
            return refuse("the transaction limit is shorter than the lease");
        }
        if self.max_attempts == 0 || self.max_attempts > MAX_ATTEMPT + 1 {
            return refuse("max_attempts must be between 1 and 16,384");
        }
        if self.max_documents == 0 {
            return refuse("max_documents is 0");
        }
        if self.max_running == 0 {
            return refuse("max_running is 0");
        }
        if self.retention_days == 0 {
            return refuse("retention_days must be at least 1");
        }
        self.check_wait(self.deadline)
    }

    /// Whether something may take so long: a transaction must end long before its record may be dropped.
    pub(crate) fn check_wait(&self, deadline: Duration) -> Result<()> {
        if deadline.saturating_add(self.transaction_limit) <= LONGEST {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a deadline of {deadline:?} with a transaction limit of {:?} is too long: together at most 12 hours, so \
             that everything ends long before its record may be dropped",
            self.transaction_limit
        )))
    }

    /// How long a transaction with these options may take.
    pub(crate) fn deadline_of(&self, options: &Options) -> Result<Duration> {
        let deadline = options.deadline.unwrap_or(self.deadline);
        self.check_wait(deadline)?;
        Ok(deadline)
    }

    /// The lease of an attempt: doubles, so that an overloaded cluster does not kill everyone.
    pub(crate) fn lease_of(&self, attempt: u16) -> Duration {
        let doubled = self.lease.saturating_mul(1 << attempt.min(16));
        doubled.min(self.transaction_limit)
    }
}

/// When a transaction returns to its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// At the commit point: durable, and seen by every transaction and every reader of this crate. A task of the domain applies it
    /// afterwards: see [`Config::runtime`].
    #[default]
    Committed,
    /// Once plain GETs see it too.
    Applied,
    /// Once plain searches see it too: applied, and its collections are refreshed.
    Searchable,
}

/// Settings of one transaction.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// Lock at each read from the first attempt on, instead of at the end.
    pub pessimistic: bool,
    /// Lock what is only read, too (two-phase locking by the book).
    pub lock_reads: bool,
    /// Never be composed with others ([`Config::groups`]): what it wrote has a version of its own.
    pub by_itself: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// When to return.
    pub acknowledge: Acknowledge,
    /// Instead of [`Config::deadline`], within the same bound.
    pub deadline: Option<Duration>,
    /// A JSON value kept in the record, for people and programs that look at it. Never logged.
    pub metadata: Option<String>,
}

/// What a caller says of a transaction stays out of logs.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pessimistic, lock_reads, by_itself, read_only, .. } = self;
        let Self { acknowledge, deadline, metadata, .. } = self;
        f.debug_struct("Options")
            .field("pessimistic", pessimistic)
            .field("lock_reads", lock_reads)
            .field("by_itself", by_itself)
            .field("read_only", read_only)
            .field("acknowledge", acknowledge)
            .field("deadline", deadline)
            .field("metadata_bytes", &metadata.as_ref().map(String::len))
            .finish()
    }
}

impl Options {
    setters! {
        /// Sets [`Options::pessimistic`].
        with_pessimistic: pessimistic: bool;
        /// Sets [`Options::lock_reads`].
        with_lock_reads: lock_reads: bool;
        /// Sets [`Options::by_itself`].
        with_by_itself: by_itself: bool;
        /// Sets [`Options::read_only`].
        with_read_only: read_only: bool;
        /// Sets [`Options::acknowledge`].
        with_acknowledge: acknowledge: Acknowledge;
        /// Sets [`Options::deadline`].
        with_deadline: deadline: Option<Duration>;
        /// Sets [`Options::metadata`].
        with_metadata: metadata: Option<String>;
    }
}
