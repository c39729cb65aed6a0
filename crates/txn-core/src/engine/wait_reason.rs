//! What anybody waits for, and the error of a wait that was too long.

use txn_protocol::ids::AttemptId;

use crate::error::{Error, ErrorKind};
use crate::store::Key;

/// What a wait is for.
#[derive(Clone, Debug)]
pub(crate) enum WaitReason {
    /// The store does not answer, or refuses for the moment.
    Store(String),
    /// Another transaction is entitled to go first.
    Others {
        /// The document.
        key: Key,
        /// Who holds it.
        holder: AttemptId,
    },
    /// Others write the document again and again.
    Changing(Key),
    /// Nobody can tell yet whether a committed transaction was applied to it.
    Unclear(Key),
}

impl WaitReason {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Store(why) => Error::unavailable(format!(
                "the store did not carry it out before the deadline: {why}"
            )),
            Self::Others { key, holder } => {
                let message = format!(
                    "other transactions held it until the deadline, last the transaction {holder}"
                );
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
            Self::Changing(key) => {
                let message = "others wrote it again and again until the deadline";
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
            Self::Unclear(key) => {
                let message = "whether a committed transaction was applied to it was not known before the deadline";
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
        }
    }
}
