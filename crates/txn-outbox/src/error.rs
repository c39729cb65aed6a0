//! Errors of the outbox.

use txn_core::store::StoreError;
use txn_lock::LockError;

/// The result of an outbox operation.
pub type Result<T, E = OutboxError> = std::result::Result<T, E>;

/// The reason why a call failed.
///
/// A failed call changed nothing, except for an [`OutboxError::Engine`] of the kind `Unknown`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// A topic or a key is not valid for a queue.
    #[error(
        "{what} {text:?} cannot name a queue: use 1 to {most} bytes without control characters{more}"
    )]
    InvalidName {
        /// The invalid part of the name.
        what: &'static str,
        /// The invalid text, shortened.
        text: String,
        /// The maximum number of bytes.
        most: usize,
        /// Further forbidden characters, as a part of the error text.
        more: &'static str,
    },
    /// The payload cannot be stored.
    #[error("the payload of an event of {queue} cannot be stored: {why}")]
    InvalidPayload {
        /// The name of the queue.
        queue: String,
        /// The reason.
        why: String,
    },
    /// The HTTP request can never be sent.
    #[cfg(feature = "http-requests")]
    #[error("the HTTP request is invalid: {0}")]
    InvalidHttp(String),
    /// The number of waiting events of the queue has reached its limit.
    #[error(
        "{waiting} events of {queue} wait already, at most {most} are allowed: retry after they are handled, or check why \
         they are not"
    )]
    Full {
        /// The name of the queue.
        queue: String,
        /// The number of waiting events.
        waiting: u64,
        /// The limit.
        most: u64,
    },
    /// The moment of a timer is too far away.
    #[error(
        "the moment of an event of {queue} is {days} days away, at most {most} are allowed: `not_before_ms` counts \
         milliseconds since 1970"
    )]
    TooLate {
        /// The name of the queue.
        queue: String,
        /// The number of days until the moment.
        days: u64,
        /// The limit, in days.
        most: u64,
    },
    /// The settings are not valid.
    #[error("these settings cannot work: {0}")]
    InvalidConfig(&'static str),
    /// The event is already handled or a dead letter.
    ///
    /// Another holder of the shard handled the event or set it aside.
    #[error("the event {0} is not the next of its queue any more: it was handled, or set aside")]
    NotNext(String),
    /// No dead letter has this id.
    #[error("there is no dead letter {0:?}")]
    NotFound(String),
    /// A newer version of this program wrote the document.
    #[error(
        "{document} has the format {format}, which this version does not know: use the newer one"
    )]
    NewerFormat {
        /// The id of the document.
        document: String,
        /// The format number of the document.
        format: u32,
    },
    /// Another program deleted a required document.
    #[error(
        "{document} is missing, and its queue cannot continue: restore it, or write any event of format 1 in its place"
    )]
    Missing {
        /// The id of the document.
        document: String,
    },
    /// The shard is lost, or a lock was not granted.
    #[error(transparent)]
    Lock(LockError),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// An error of the store during a scan.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database saw a larger token of a shard than the holder's.
    ///
    /// Tokens only grow. A smaller token shows that the locks of the domain were lost or restored,
    /// or that another domain relays the same database.
    #[cfg(feature = "postgres")]
    #[error(
        "the database of the outbox saw the token {seen} of the shard {shard}, but its holder has the token {token}: the locks \
         of this domain were lost or restored, or another domain relays this database. Stop the processors of that \
         domain, or all processors with an older token; then run UPDATE txn_outbox.fence SET token = 0"
    )]
    TokensRestarted {
        /// The shard with the two tokens.
        shard: crate::queue::shard::Shard,
        /// The token of the holder.
        token: u64,
        /// The largest token that the database saw.
        seen: u64,
    },
    /// The database of a relational outbox lost commits, and reuses earlier positions.
    #[cfg(feature = "postgres")]
    #[error(
        "the database of the outbox has lost commits: the position of the event {event} was already handled, up to {handled}, \
         with another event. Nothing is handled or removed; see \"Durability of the database\" of txn_outbox::postgres"
    )]
    PositionsRestarted {
        /// The event in a position that was already handled.
        event: String,
        /// The last handled position of the queue.
        handled: u64,
    },
    /// The database of a relational outbox failed.
    #[cfg(feature = "postgres")]
    #[error("the database of the outbox: {what}")]
    Database {
        /// The failure, and the remedy.
        what: String,
        /// The error of the driver.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl From<LockError> for OutboxError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Engine(error) => Self::Engine(error),
            LockError::Store(error) => Self::Store(error),
            error => Self::Lock(error),
        }
    }
}

impl OutboxError {
    /// Whether a retry of an idempotent call can succeed.
    ///
    /// The store or the database did not answer, the transaction had a conflict, or its outcome is
    /// unknown.
    #[must_use]
    pub fn is_transient_or_unknown(&self) -> bool {
        match self {
            Self::Engine(error) => error.kind().is_transient_or_unknown(),
            Self::Store(_) => true,
            #[cfg(feature = "postgres")]
            Self::Database { .. } => true,
            _ => false,
        }
    }
}
