//! The reserved fields: what the engine keeps in the application's documents, beside their own
//! content. All are top-level fields; their names are part of the on-disk format.

/// The lock (keyword): the tid of the attempt that holds the document. Absent or null: unlocked.
pub const TRANSACTION_TID: &str = "transaction_tid";

/// The version (keyword): the commit tid of the last transaction that wrote the document.
pub const TID: &str = "tid";

/// The last commit tids of content writes (keyword, neither indexed nor sorted on), by which a one-document transaction finds
/// out whether its own write happened.
pub const TRANSACTION_RECENT: &str = "transaction_recent";

/// `true` (boolean) on a placeholder: a lock on a document that does not exist (yet).
pub const TRANSACTION_ABSENT: &str = "transaction_absent";

/// All of them.
pub const RESERVED: [&str; 4] = [TRANSACTION_TID, TID, TRANSACTION_RECENT, TRANSACTION_ABSENT];

/// The state of a transaction record (keyword), by which the janitor finds open ones.
pub const STATE: &str = "state";

/// The documents that a transaction record deletes (keyword, a list), by which a document that is
/// gone is explained.
pub const DELETES: &str = "deletes";
