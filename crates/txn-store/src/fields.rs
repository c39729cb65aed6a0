//! The reserved fields, which the engine keeps in documents of the application.
//!
//! All reserved fields are top-level fields. Their names are part of the on-disk format.

/// The lock (keyword): the tid of the attempt that holds the document.
///
/// Absent or null: the document is unlocked.
pub const TRANSACTION_TID: &str = "transaction_tid";

/// The version (keyword): the commit version of the last writing transaction.
pub const TRANSACTION_VERSION: &str = "transaction_version";

/// The commit versions of the last content writes.
///
/// A keyword field, neither indexed nor sorted on. A transaction with one document finds
/// out here whether its own write was applied.
pub const TRANSACTION_RECENT: &str = "transaction_recent";

/// `true` (boolean) on a placeholder: a lock on an absent document.
pub const TRANSACTION_ABSENT: &str = "transaction_absent";

/// All reserved fields.
pub const RESERVED: [&str; 4] =
    [TRANSACTION_TID, TRANSACTION_VERSION, TRANSACTION_RECENT, TRANSACTION_ABSENT];

/// The state of a transaction record (keyword). The janitor finds open records by this field.
pub const STATE: &str = "state";

/// The documents that a transaction record deletes (keyword, a list).
///
/// This field explains why a document is absent.
pub const DELETES: &str = "deletes";
