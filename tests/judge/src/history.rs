//! The form of a history.

use std::collections::BTreeMap;

/// The type of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Writes append values to lists. Each read shows a list.
    List,
    /// Each write overwrites a value, and each read shows the value.
    Register,
}

/// The fate of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The transaction committed.
    Committed,
    /// The transaction changed nothing, and never will.
    Aborted,
    /// The transaction committed, or did not, or may still commit.
    Unknown,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Appends a value to a list, or overwrites a register.
    Write {
        /// The key.
        key: u64,
        /// The value. No other write of the history writes the same value to the key.
        value: u64,
    },
    /// Reads a list or a register.
    Read {
        /// The key.
        key: u64,
        /// The values of the list, or the value of the register. Empty if the register has no
        /// value.
        ///
        /// `None` if the answer is unknown.
        seen: Option<Vec<u64>>,
    },
}

/// A transaction. Positions of beginnings and ends are in one order for the whole history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The name of the transaction in anomalies.
    pub id: u64,
    /// The position of its beginning, before its first request.
    pub began: u64,
    /// The position of the answer that the transaction committed.
    ///
    /// `None` if the caller received another answer or none. The fate may still be
    /// [`Fate::Committed`], if it was found out later.
    pub acknowledged: Option<u64>,
    /// The fate.
    pub fate: Fate,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

/// A history: all transactions of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The type of the data.
    pub model: Model,
    /// The transactions, in any order.
    pub transactions: Vec<Transaction>,
    /// The contents of keys after the last transaction. `None` if the keys were not read then.
    pub finals: Option<BTreeMap<u64, Vec<u64>>>,
}
