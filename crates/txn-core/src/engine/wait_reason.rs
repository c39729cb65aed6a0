//! Reasons of waits, and the error of a wait past its deadline.

use std::sync::Arc;

use txn_protocol::ids::AttemptId;

use crate::engine::signals::label::named;
use crate::error::{Error, ErrorKind};
use txn_store::Key;

/// The reason of a wait.
#[derive(Clone, Debug)]
pub(crate) enum WaitReason {
    /// The store does not answer, or refuses for the moment.
    Store(String),
    /// Another transaction may go first.
    Others {
        key: Key,
        /// The attempt that holds the lock.
        holder: AttemptId,
        /// The label of the holder, if this process knows it.
        label: Option<Arc<str>>,
    },
    /// Other transactions keep writing the document.
    Changing(Key),
    /// Whether a committed transaction was applied to the document is unknown yet.
    Unclear(Key),
}

impl WaitReason {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Store(why) => Error::unavailable(format!(
                "the store did not complete the request before the deadline: {why}"
            )),
            Self::Others { key, holder, label } => {
                let holder = named(holder, label.as_deref());
                let message =
                    format!("timed out waiting for another transaction, last for {holder}");
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
            Self::Changing(key) => {
                let message = "timed out: the document kept changing";
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
            Self::Unclear(key) => {
                let message = "timed out: it is unknown whether a committed transaction was applied to the document";
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
        }
    }
}
