//! The error of the engine.
//!
//! There is one type, with one kind for each reaction of the caller.

use std::fmt;

use txn_protocol::ids::AttemptId;
use txn_protocol::machines::invariant::Invariant;
use txn_store::{Key, Outcome, Refusal, RefusalKind, StoreError, StoreErrorKind};

/// The reaction of the caller that an [`Error`] calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is invalid: correct it. Nothing was changed.
    Invalid,
    /// The document to insert exists already. Nothing was changed.
    Exists,
    /// A stored document is not of the type of its collection.
    ///
    /// The collection was opened with this type.
    ///
    /// The message names the field. Correct the type or the document. Nothing was changed.
    WrongType,
    /// Other transactions blocked this one until the deadline or the attempt limit.
    ///
    /// Run the transaction again later. Nothing was changed.
    Conflict,
    /// The store does not answer, or the domain is shutting down.
    ///
    /// Run the transaction again later. Nothing was changed.
    Unavailable,
    /// The process runs too many transactions at once.
    ///
    /// All permits of
    /// [`Config::with_max_concurrent_transactions`](crate::Config::with_max_concurrent_transactions)
    /// are taken, and the transaction waited in vain. Start fewer transactions at once, or run this
    /// transaction again later. Nothing was sent.
    Overloaded,
    /// The transaction may be committed or not, but only as a whole.
    ///
    /// Ask [`Domain::outcome`](crate::Domain::outcome) with [`Error::tid`] before running the
    /// transaction again. A put of one document may have no tid; then read the document.
    Unknown,
    /// Another request was answered under the idempotency key.
    ///
    /// Give each request its own key. Nothing was changed.
    KeyReused,
    /// A collection, a permission or a setting is unfit.
    ///
    /// The message names the remedy. Nothing was changed.
    Misconfigured,
    /// Another client changed or removed data that the engine relies on.
    ///
    /// The kind also reports a committed transaction that cannot be applied any more. The message
    /// names the document. An operator must act.
    Damaged,
}

impl ErrorKind {
    /// Whether the same call may succeed later without a correction. Nothing happened.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Conflict | Self::Unavailable | Self::Overloaded)
    }

    /// Whether an idempotent call should be repeated.
    ///
    /// After [`ErrorKind::Unknown`] the first call may have happened, so a call that is not
    /// idempotent must not be repeated.
    #[must_use]
    pub const fn is_transient_or_unknown(self) -> bool {
        self.is_transient() || matches!(self, Self::Unknown)
    }

    /// Whether the error lasts until an operator repairs a document or a setting.
    pub(crate) const fn needs_operator(self) -> bool {
        matches!(self, Self::Damaged | Self::Misconfigured)
    }
}

/// A failed call: the cause, the document, the transaction and the [`ErrorKind`].
///
/// ```
/// use txn_core::{Error, ErrorKind};
///
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::Exists | ErrorKind::Conflict => 409,
///         ErrorKind::Invalid | ErrorKind::WrongType => 400,
///         kind if kind.is_transient() => 503,
///         _ => 500,
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    tid: Option<AttemptId>,
    document: Option<Key>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of a call of the engine.
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

    /// A fault of this library, not of its input.
    pub(crate) fn broken(invariant: Invariant) -> Self {
        Self::damaged(format!(
            "the invariant {invariant} of the engine does not hold: nothing was committed; please report it"
        ))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// A copy of the error for a further caller, without the source.
    pub(crate) fn again(&self) -> Self {
        let (message, document) = (self.message.clone(), self.document.clone());
        Self { kind: self.kind, message, tid: self.tid, document, source: None }
    }

    /// A copy of the error, with a note after its message.
    pub(crate) fn noting(&self, note: &str) -> Self {
        let again = self.again();
        Self { message: format!("{}; {note}", again.message), ..again }
    }

    pub(crate) fn at(mut self, document: &Key) -> Self {
        self.document.get_or_insert_with(|| document.clone());
        self
    }

    /// Names the attempt whose end failed.
    ///
    /// An unknown outcome keeps its tid or has none: an unknown one-document write leaves no record
    /// that a tid could be asked for.
    pub(crate) fn of_attempt(self, tid: AttemptId) -> Self {
        match self.kind {
            ErrorKind::Unknown => self,
            _ => self.in_transaction(tid),
        }
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

    /// The error of an outcome that no retry changes.
    ///
    /// `doing` completes "cannot … : reason".
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

    /// Returns the kind, which says what the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the attempt that failed.
    ///
    /// `None` if no attempt had begun, and for an unknown one-document write, which leaves no
    /// record.
    #[must_use]
    pub fn tid(&self) -> Option<AttemptId> {
        self.tid
    }

    /// Returns the document of the error, if the error concerns one.
    #[must_use]
    pub fn document(&self) -> Option<&Key> {
        self.document.as_ref()
    }
}

impl Error {
    /// Whether the store answered that the collection does not exist.
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
