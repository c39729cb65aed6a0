//! The error of the engine: one type, few kinds, each answered by something else the caller does.

use std::fmt;

use crate::store::{Key, Outcome, Refusal, RefusalKind, StoreError, StoreErrorKind};
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::invariant::Invariant;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input cannot be carried out: correct it. Nothing was changed.
    Invalid,
    /// A document that was to be inserted exists already. Nothing was changed.
    Exists,
    /// Others were in the way until the deadline or the attempt limit: run it again later. Nothing
    /// was changed.
    Conflict,
    /// The store does not answer, or the domain is shutting down: run it again later. Nothing was
    /// changed.
    Unavailable,
    /// This process runs as many transactions as it may, and the transaction waited for its turn in vain: offer fewer at once, or
    /// run it again later. Nothing was sent.
    Overloaded,
    /// It is unknown whether the transaction was committed. It is whole in either case: ask
    /// `Domain::outcome` with [`Error::tid`] before running it again.
    Unknown,
    /// A collection, a permission or a setting is not fit: the message names the remedy. Nothing was
    /// changed.
    Misconfigured,
    /// Something outside the engine wrote or removed what the engine relies on, or a committed
    /// transaction cannot be applied any more: the message names the document. A person must look.
    Damaged,
}

impl ErrorKind {
    /// Whether the same may succeed later, though nobody corrects anything. After [`ErrorKind::Unknown`] it may also have happened
    /// already.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Conflict | Self::Unavailable | Self::Overloaded | Self::Unknown)
    }
}

/// What happened, to which document, in which transaction, and what to do ([`ErrorKind`]).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    tid: Option<AttemptId>,
    document: Option<Key>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), tid: None, document: None, source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, message)
    }

    /// An error in this library, not in what it was asked for.
    pub(crate) fn broken(invariant: Invariant) -> Self {
        Self::damaged(format!(
            "the invariant {invariant} of the engine does not hold: nothing was committed; please report it"
        ))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The same error to be told again, without its source.
    pub(crate) fn again(&self) -> Self {
        let (message, document) = (self.message.clone(), self.document.clone());
        Self { kind: self.kind, message, tid: self.tid, document, source: None }
    }

    /// The same error to be told again, with more behind it.
    pub(crate) fn noting(&self, note: &str) -> Self {
        let again = self.again();
        Self { message: format!("{}; {note}", again.message), ..again }
    }

    pub(crate) fn at(mut self, document: &Key) -> Self {
        self.document.get_or_insert_with(|| document.clone());
        self
    }

    pub(crate) fn in_transaction(mut self, tid: AttemptId) -> Self {
        self.tid.get_or_insert(tid);
        self
    }

    pub(crate) fn because(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The error of an outcome that no retry mends. `doing` completes "cannot … : reason".
    pub(crate) fn from_refused(outcome: &Outcome, key: &Key, doing: &str) -> Self {
        let (kind, reason) = match outcome {
            Outcome::MissingCollection => {
                let reason = format!("the collection {:?} does not exist", key.collection);
                (ErrorKind::Misconfigured, reason)
            }
            Outcome::Invalid(refusal) => (refusal.into(), refusal.reason.clone()),
            Outcome::Rejected(reason) | Outcome::RejectedInDoubt(reason) => {
                (ErrorKind::Unavailable, reason.clone())
            }
            Outcome::Unknown(reason) => (ErrorKind::Unknown, reason.clone()),
            Outcome::Conflict => (ErrorKind::Conflict, "the document was changed".to_owned()),
            Outcome::Applied(_) | Outcome::Holds => {
                (ErrorKind::Damaged, "the store answered another question".to_owned())
            }
        };
        Self::new(kind, format!("cannot {doing}: {reason}")).at(key)
    }

    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The transaction attempt that failed. `None` if none had begun, and for a one-document
    /// transaction, which leaves no record that could be asked.
    #[must_use]
    pub fn tid(&self) -> Option<AttemptId> {
        self.tid
    }

    /// The document that the error is about.
    #[must_use]
    pub fn document(&self) -> Option<&Key> {
        self.document.as_ref()
    }
}

impl Error {
    /// Whether the store said that there is no such collection.
    pub(crate) fn is_not_found(&self) -> bool {
        let error = self.source.as_ref().and_then(|source| source.downcast_ref::<StoreError>());
        error.is_some_and(|error| error.kind == StoreErrorKind::NotFound)
    }
}

impl From<&Refusal> for ErrorKind {
    fn from(refusal: &Refusal) -> Self {
        match refusal.kind {
            RefusalKind::Denied | RefusalKind::Misconfigured => Self::Misconfigured,
            RefusalKind::Damaged => Self::Damaged,
            RefusalKind::Blocked => Self::Unavailable,
            RefusalKind::Document | RefusalKind::Id | RefusalKind::TooLarge => Self::Invalid,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind {
            StoreErrorKind::Unavailable | StoreErrorKind::Blocked => ErrorKind::Unavailable,
            StoreErrorKind::NotFound | StoreErrorKind::Misconfigured | StoreErrorKind::Denied => {
                ErrorKind::Misconfigured
            }
            StoreErrorKind::Damaged => ErrorKind::Damaged,
        };
        Self::new(kind, error.message.clone()).because(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(document) = &self.document {
            write!(f, "{document}: ")?;
        }
        f.write_str(&self.message)?;
        match self.tid {
            Some(tid) => write!(f, " (transaction {tid})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
