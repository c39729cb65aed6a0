//! What callers of transactions were told.

use std::collections::BTreeMap;

/// What the caller of one transaction was told in the end.
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
    /// Accounts and counters: documents that are changed.
    Accounts,
    /// Transfers and pairs: documents that are inserted and deleted.
    Entries,
}

/// A document of the load.
pub(crate) type Document = (Role, String);

/// Numbers of accounts, and by how much each changes.
pub(crate) type Moves = Vec<(usize, i64)>;

/// One transfer under its idempotency key: an entry with the key, and changes of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) moves: Moves,
    pub(crate) told: Told,
    /// How often it was made again under its key, after its entry was lost.
    pub(crate) again: i64,
}

/// One pair: two entries that are inserted together, and deleted together if at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) inserted: Told,
    /// What the caller of the deletion was told. A pair is deleted only after its insertion was acknowledged.
    pub(crate) deleted: Option<Told>,
}

/// One counter: two documents with the same number, which transactions increase by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
}

/// What is to become of a document that the administrator owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    Goes,
}

/// Everything that callers were told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Book {
    /// What each account holds before the load.
    pub(crate) opening: i64,
    pub(crate) accounts: usize,
    pub(crate) transfers: BTreeMap<String, Transfer>,
    pub(crate) pairs: BTreeMap<String, Pair>,
    pub(crate) counters: Vec<Counter>,
    /// Documents that no transaction writes.
    pub(crate) owned: BTreeMap<Document, Fate>,
    /// What committed transactions read and no serial order of whole transactions allows.
    pub(crate) anomalies: Vec<String>,
}

impl Book {
    /// A book of accounts and counters before the load.
    #[must_use]
    pub(crate) fn new(accounts: usize, opening: i64, counters: usize) -> Self {
        Self { opening, accounts, counters: vec![Counter::default(); counters], ..Self::default() }
    }

    /// The sum of all accounts, at every moment.
    #[must_use]
    pub(crate) fn total(&self) -> i64 {
        i64::try_from(self.accounts).unwrap_or(i64::MAX) * self.opening
    }
}

/// The name of an account.
#[must_use]
pub(crate) fn account(number: usize) -> String {
    format!("a{number}")
}

/// The two documents of a counter.
#[must_use]
pub(crate) fn counter(number: usize) -> [String; 2] {
    ["left", "right"].map(|side| format!("counter-{number}-{side}"))
}

/// The two documents of a pair.
#[must_use]
pub(crate) fn pair(key: &str) -> [String; 2] {
    ["left", "right"].map(|side| format!("{key}-{side}"))
}
