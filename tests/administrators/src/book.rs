//! The outcomes that callers of transactions received.

use std::collections::BTreeMap;

/// The final outcome that the caller of one transaction received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The transaction is committed.
    Acknowledged,
    /// Nothing was changed.
    Refused,
    /// The transaction may have been committed.
    Unknown,
}

/// A collection of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Accounts and counters: documents that change.
    Accounts,
    /// Transfers and pairs: documents that are inserted and deleted.
    Entries,
}

/// A document of the load.
pub(crate) type Document = (Role, String);

/// Numbers of accounts, and their changes.
pub(crate) type Moves = Vec<(usize, i64)>;

/// One transfer: an entry with its idempotency key, and changes of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) moves: Moves,
    pub(crate) told: Told,
    /// How often the transfer was repeated under its key. A repetition follows after the transfer's
    /// entry was lost.
    pub(crate) again: i64,
}

/// A pair of entries that are inserted together.
///
/// The entries are deleted together, or never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) inserted: Told,
    /// The outcome of the deletion. A pair is deleted only after its insertion was acknowledged.
    pub(crate) deleted: Option<Told>,
}

/// One counter: two documents with the same number, which transactions increment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
}

/// The expected fate of a document of the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    Goes,
}

/// All outcomes that callers received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Book {
    /// The opening balance of each account.
    pub(crate) opening: i64,
    pub(crate) accounts: usize,
    pub(crate) transfers: BTreeMap<String, Transfer>,
    pub(crate) pairs: BTreeMap<String, Pair>,
    pub(crate) counters: Vec<Counter>,
    /// Documents that no transaction writes.
    pub(crate) owned: BTreeMap<Document, Fate>,
    /// Reads of committed transactions that no serial order of whole transactions allows.
    pub(crate) anomalies: Vec<String>,
}

impl Book {
    /// Creates the record of accounts and counters before the load.
    #[must_use]
    pub(crate) fn new(accounts: usize, opening: i64, counters: usize) -> Self {
        Self { opening, accounts, counters: vec![Counter::default(); counters], ..Self::default() }
    }

    /// Returns the sum of all accounts, which is constant.
    #[must_use]
    pub(crate) fn total(&self) -> i64 {
        i64::try_from(self.accounts).unwrap_or(i64::MAX) * self.opening
    }
}

/// Returns the name of an account.
#[must_use]
pub(crate) fn account(number: usize) -> String {
    format!("a{number}")
}

/// Returns the two documents of a counter.
#[must_use]
pub(crate) fn counter(number: usize) -> [String; 2] {
    ["left", "right"].map(|side| format!("counter-{number}-{side}"))
}

/// Returns the two documents of a pair.
#[must_use]
pub(crate) fn pair(key: &str) -> [String; 2] {
    ["left", "right"].map(|side| format!("{key}-{side}"))
}
