//! Errors of opening, and internal faults of reads and writes.

use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use txn_store::{Outcome, Refusal, RefusalKind, StoreError, StoreErrorKind};

/// The reason why [`RedbStore::open`](crate::RedbStore::open) failed.
///
/// The text names the file, the fault, and the remedy.
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Kinds of [`OpenError`], by their remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// A process, perhaps this one, has the file open. Close the store there first.
    InUse,
    /// The directory of the file does not exist. Create the directory.
    MissingDirectory,
    /// The user must not read or write the file.
    Denied,
    /// The file is not a store of this release.
    ///
    /// The file is not by redb, of another application, or of another release.
    NotAStore,
    /// The file is a store whose contents are damaged or cut off. Restore a copy.
    Damaged,
    /// The disk or the operating system failed in another way.
    Io,
}

impl OpenError {
    /// Returns the kind of fault.
    #[must_use]
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }

    pub(crate) fn new(kind: OpenErrorKind, path: &Path, message: impl fmt::Display) -> Self {
        Self { kind, message: format!("cannot open {}: {message}", path.display()), source: None }
    }

    fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let (kind, message) = match error.kind() {
            io::ErrorKind::NotFound => {
                let directory = directory.unwrap_or(Path::new(".")).display();
                let message = format!("the directory {directory} does not exist; make it first");
                (OpenErrorKind::MissingDirectory, message)
            }
            io::ErrorKind::NotADirectory => {
                let directory = directory.unwrap_or(Path::new(".")).display();
                (OpenErrorKind::MissingDirectory, format!("{directory} is not a directory"))
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let message = format!(
                    "{error}; this user needs to read and write the file, and to make it if it is new"
                );
                (OpenErrorKind::Denied, message)
            }
            io::ErrorKind::IsADirectory => {
                (OpenErrorKind::NotAStore, "it is a directory; name a file".to_owned())
            }
            io::ErrorKind::UnexpectedEof => {
                (OpenErrorKind::Damaged, format!("it is cut off ({error}); {RESTORE}"))
            }
            io::ErrorKind::InvalidData => {
                let message = "it is not a redb file; name another file (if its very first opening \
                               was cut short it holds nothing: remove it)";
                (OpenErrorKind::NotAStore, message.to_owned())
            }
            _ => (OpenErrorKind::Io, error.to_string()),
        };
        Self::new(kind, path, message).because(error)
    }

    pub(crate) fn database(path: &Path, error: redb::DatabaseError) -> Self {
        match error {
            redb::DatabaseError::Storage(redb::StorageError::Io(error)) => Self::io(path, error),
            redb::DatabaseError::DatabaseAlreadyOpen => {
                let message = "it is open already, in another process or in this one; one process \
                               at a time has a store open: stop the other, or share its store";
                Self::new(OpenErrorKind::InUse, path, message).because(error)
            }
            redb::DatabaseError::UpgradeRequired(_) => {
                Self::new(OpenErrorKind::NotAStore, path, &error).because(error)
            }
            error => {
                let message = format!("{error}; {RESTORE}");
                Self::new(OpenErrorKind::Damaged, path, message).because(error)
            }
        }
    }

    pub(crate) fn fault(path: &Path, fault: Fault) -> Self {
        let kind = match &fault {
            Fault::Storage(_) | Fault::Closed => OpenErrorKind::Io,
            Fault::Corrupt(_) | Fault::Damaged(_) => OpenErrorKind::Damaged,
        };
        Self::new(kind, path, &fault).because(fault)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The remedy of damage.
const RESTORE: &str = "restore the file from a copy";

/// The reason why the file could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A failure of the disk or the operating system, which may recover.
    Storage(String),
    /// The pages do not hold redb's data. The pages were overwritten or cut off.
    Corrupt(String),
    /// One entry does not have this crate's layout.
    Damaged(String),
    /// The store was closed.
    Closed,
}

impl Fault {
    pub(crate) fn damaged(entry: impl Into<String>) -> Self {
        Self::Damaged(entry.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(why) => write!(f, "the file of the store failed: {why}"),
            Self::Corrupt(what) | Self::Damaged(what) => {
                write!(f, "the file of the store is damaged: {what}; {RESTORE}")
            }
            Self::Closed => f.write_str("the store is closed; open it again"),
        }
    }
}

impl Error for Fault {}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let kind = match fault {
            Fault::Storage(_) | Fault::Closed => StoreErrorKind::Unavailable,
            Fault::Corrupt(_) | Fault::Damaged(_) => StoreErrorKind::Damaged,
        };
        Self::new(kind, fault.to_string())
    }
}

/// The outcome of a write that was certainly not written.
impl From<&Fault> for Outcome {
    fn from(fault: &Fault) -> Self {
        let reason = fault.to_string();
        match fault {
            Fault::Storage(_) | Fault::Closed => Self::Rejected(reason),
            Fault::Corrupt(_) | Fault::Damaged(_) => {
                Self::Invalid(Refusal { kind: RefusalKind::Damaged, reason })
            }
        }
    }
}

impl From<redb::StorageError> for Fault {
    fn from(error: redb::StorageError) -> Self {
        match &error {
            // A panic poisons a lock, and redb panics on nonsensical pages.
            redb::StorageError::Corrupted(_) | redb::StorageError::LockPoisoned(_) => {
                Self::Corrupt(error.to_string())
            }
            redb::StorageError::Io(io) if io.kind() == io::ErrorKind::UnexpectedEof => {
                Self::Corrupt(format!("it is cut off ({error})"))
            }
            _ => Self::Storage(error.to_string()),
        }
    }
}

impl From<redb::TableError> for Fault {
    fn from(error: redb::TableError) -> Self {
        match error {
            redb::TableError::Storage(error) => error.into(),
            // When the file was opened, all tables existed with their types.
            error => Self::Corrupt(error.to_string()),
        }
    }
}

impl From<redb::TransactionError> for Fault {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(error) => error.into(),
            error => Self::Storage(error.to_string()),
        }
    }
}

impl From<redb::SetDurabilityError> for Fault {
    fn from(error: redb::SetDurabilityError) -> Self {
        Self::Storage(error.to_string())
    }
}

impl From<redb::CommitError> for Fault {
    fn from(error: redb::CommitError) -> Self {
        match error {
            redb::CommitError::Storage(error) => error.into(),
            error => Self::Storage(error.to_string()),
        }
    }
}

/// Runs an action of redb, and turns a panic into a fault.
///
/// On an overwritten page redb indexes out of bounds or reaches unreachable code, and panics. No
/// other sign of such a page exists. A panic of this crate counts as damage, too, because an entry
/// of the file caused it.
pub(crate) fn caught<R>(action: impl FnOnce() -> R) -> Result<R, Fault> {
    // Nothing that was under way is used again: transactions are dropped, and a writer that
    // panicked stops.
    catch_unwind(AssertUnwindSafe(action))
        .map_err(|_| Fault::Corrupt("its pages make no sense, they were overwritten".to_owned()))
}
