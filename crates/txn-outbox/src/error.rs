//! Why a call did not do what was asked.

use txn_core::store::StoreError;
use txn_lock::LockError;

/// Results of the outbox.
pub type Result<T, E = OutboxError> = std::result::Result<T, E>;

/// Why a call did not do what was asked. Unless it is [`OutboxError::Engine`] of the kind `Unknown`, nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// A topic or a key that no queue can have.
    #[error(
        "{what} {text:?} cannot name a queue: use 1 to {most} bytes without control characters{more}"
    )]
    InvalidName {
        /// Which part of the name.
        what: &'static str,
        /// The text, shortened.
        text: String,
        /// Most bytes.
        most: usize,
        /// What else does not go.
        more: &'static str,
    },
    /// A payload that cannot be stored.
    #[error("the payload of an event of {queue} cannot be stored: {why}")]
    InvalidPayload {
        /// The queue.
        queue: String,
        /// What is wrong.
        why: String,
    },
    /// An HTTP request that can never be sent.
    #[cfg(feature = "http-requests")]
    #[error("the HTTP request is invalid: {0}")]
    InvalidHttp(String),
    /// As many events of a queue wait as may.
    #[error(
        "{waiting} events of {queue} wait already, at most {most} may: try again when they are handled, or look why they \
         are not"
    )]
    Full {
        /// The queue.
        queue: String,
        /// How many wait.
        waiting: u64,
        /// How many may.
        most: u64,
    },
    /// Settings that cannot work.
    #[error("these settings cannot work: {0}")]
    InvalidConfig(&'static str),
    /// The event was handled or set aside already: by whoever had its shard before or has it now.
    #[error("the event {0} is not the next of its queue any more: it was handled, or set aside")]
    NotNext(String),
    /// There is no such dead letter.
    #[error("there is no dead letter {0:?}")]
    NotFound(String),
    /// A document was written by a newer version of this program.
    #[error(
        "{document} has the format {format}, which this version does not know: use the newer one"
    )]
    NewerFormat {
        /// The document.
        document: String,
        /// Its format.
        format: u32,
    },
    /// A document that has to be there is missing: something else deleted it.
    #[error(
        "{document} is missing: restore it, or write any event of format 1 in its place, for its queue does not go on without"
    )]
    Missing {
        /// The document.
        document: String,
    },
    /// The shard is held no longer, or a lock was not granted.
    #[error(transparent)]
    Lock(LockError),
    /// The engine's own error.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// The store's own error, while documents were looked through.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database of a relational outbox saw a larger token of a shard than that of its holder. Tokens only grow, unless
    /// the locks of the domain were lost or restored, or another domain relays the same database.
    #[cfg(feature = "postgres")]
    #[error(
        "the database of the outbox saw the token {seen} of the shard {shard}, and who holds it has {token} only: the locks \
         of this domain were lost or restored, or another domain relays this database. Stop the processors of that, or all \
         that may have a token of before; then run UPDATE txn_outbox.fence SET token = 0"
    )]
    TokensBeganAnew {
        /// The shard.
        shard: crate::shard::Shard,
        /// The token of its holder.
        token: u64,
        /// The largest that the database saw.
        seen: u64,
    },
    /// The database of a relational outbox counts from an earlier number again: it lost commits.
    #[cfg(feature = "postgres")]
    #[error(
        "the database of the outbox has lost commits: the place of the event {event} was handled before, up to {handled}, with \
         another event in it. Nothing is handled or removed; see \"What it needs of the database\" of txn_outbox::postgres"
    )]
    CountsAnew {
        /// The event that is in a place that was handled.
        event: String,
        /// The last place of its queue that was handled.
        handled: u64,
    },
    /// The database of a relational outbox did not do its part.
    #[cfg(feature = "postgres")]
    #[error("the database of the outbox: {what}")]
    Database {
        /// What happened, and what to do.
        what: String,
        /// The driver's own error.
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
    /// Whether it passes by itself: the store or the database did not answer, or others were in the way.
    #[must_use]
    pub fn passes(&self) -> bool {
        match self {
            Self::Engine(error) => error.kind().passes(),
            Self::Store(_) => true,
            #[cfg(feature = "postgres")]
            Self::Database { .. } => true,
            _ => false,
        }
    }
}
