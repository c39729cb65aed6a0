//! The audit: compares the balances with the ledger.
//!
//! Only opening deposits bring money in. Each is recorded in the transaction that opens its
//! account. Transfers sum to zero. The expected total of a currency is therefore the exact sum of
//! its deposits. Each balance is the sum of the account's entries in deposits and transfers.
//!
//! The audit scans both collections after a refresh. A scan shows locked documents as they were
//! before their transaction. The audit reads these documents again through the engine, which
//! returns the committed content. Several scans are no snapshot: an audit is meaningful only while
//! no transaction runs, and reports running ones.

pub(crate) mod auditor;
mod statements;
pub(crate) mod voided;

use std::fmt;

use serde::Serialize;

use crate::model::Currency;

pub use voided::Voided;

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Audit {
    /// The number of accounts.
    pub accounts: usize,
    /// The number of opening deposits in the ledger.
    pub deposits: usize,
    /// The number of transfers in the ledger.
    pub transfers: usize,
    /// The expected and the found totals, by currency.
    pub totals: Vec<Total>,
    /// The number of recovered transactions. `None` for an audit without recovery.
    pub recovered: Option<usize>,
    /// The voided locks without a record, of at most 1,000 transactions.
    ///
    /// The list starts at the open of the bank by this process. The ledger cannot show whether one
    /// of these transactions was committed.
    pub voided: Vec<Voided>,
    /// All problems.
    pub findings: Vec<Finding>,
}

impl Audit {
    /// Whether the audit found no problem.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether the audit found locks or open transactions.
    ///
    /// A transaction may then be running, and sums may mix different moments.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let live = |f: &Finding| matches!(f, Finding::Locked { .. } | Finding::Open { .. });
        self.findings.iter().any(live)
    }
}

/// The total of one currency, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Total {
    /// The currency of all amounts in this total.
    pub currency: Currency,
    /// The sum of all opening deposits.
    pub expected: i128,
    /// The sum of all balances.
    pub found: i128,
}

/// A problem that the audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The balances of a currency differ from the deposits.
    Total {
        /// The currency whose balances and deposits differ.
        currency: Currency,
        /// The sum of all opening deposits.
        expected: i128,
        /// The sum of all balances.
        found: i128,
    },
    /// A balance differs from the sum of the account's entries.
    Balance {
        /// The name of the account.
        account: String,
        /// The balance by the ledger.
        expected: i128,
        /// The balance of the account.
        found: i64,
        /// The currency of the account.
        currency: Currency,
    },
    /// A balance is negative without an overdraft.
    Overdrawn {
        /// The name of the account.
        account: String,
        /// The negative balance, in minor units.
        balance: i64,
    },
    /// A closed account is not empty.
    Closed {
        /// The name of the account.
        account: String,
        /// The balance that is left, in minor units.
        balance: i64,
    },
    /// A statement is incomplete, or differs from the ledger.
    Statement {
        /// The name of the account.
        account: String,
        /// The number of the first wrong line.
        line: u64,
        /// The kind of the difference.
        what: String,
    },
    /// The legs of a transfer do not sum to zero.
    Unbalanced {
        /// The key of the transfer.
        key: String,
        /// The currency of these legs.
        currency: Currency,
        /// The sum of the legs.
        sum: i128,
    },
    /// The ledger has entries of a missing account, or in another currency.
    NoAccount {
        /// The name of the account.
        account: String,
        /// The currency of the entries.
        currency: Currency,
        /// The balance by the ledger.
        expected: i128,
    },
    /// A document is locked.
    Locked {
        /// The locked document, as collection and id.
        document: String,
        /// The tid of the holder.
        holder: String,
    },
    /// A transaction is neither finished nor aborted.
    Open {
        /// The tid of the transaction.
        tid: String,
        /// The state of the record.
        state: String,
    },
    /// A document or a record is damaged.
    Damaged {
        /// The document or record, as collection and id.
        document: String,
        /// The kind of damage.
        what: String,
    },
    /// A collection or a partition could not be read.
    Unreachable {
        /// The name of the collection.
        collection: String,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total { currency, expected, found } => {
                let off = found - expected;
                write!(
                    f,
                    "the balances sum to {found} {currency}, the deposits to {expected}: {off:+}"
                )
            }
            Self::Balance { account, expected, found, currency } => {
                let off = i128::from(*found) - expected;
                write!(f, "{account} holds {found} {currency}, the ledger says {expected}: {off:+}")
            }
            Self::Overdrawn { account, balance } => {
                write!(f, "{account} holds {balance} and may not be overdrawn")
            }
            Self::Closed { account, balance } => {
                write!(f, "{account} is closed and holds {balance}")
            }
            Self::Statement { account, line, what } => {
                write!(f, "line {line} of the statement of {account} {what}")
            }
            Self::Unbalanced { key, currency, sum } => {
                write!(f, "the legs of the transfer {key} sum to {sum:+} {currency}, not to zero")
            }
            Self::NoAccount { account, currency, expected } => {
                write!(
                    f,
                    "the ledger has {expected} {currency} of the account {account}, which does not exist"
                )
            }
            Self::Locked { document, holder } => write!(f, "{document} is locked by {holder}"),
            Self::Open { tid, state } => write!(f, "the transaction {tid} is open: {state}"),
            Self::Damaged { document, what } => write!(f, "{document} is damaged: {what}"),
            Self::Unreachable { collection, why } => {
                write!(f, "{collection} could not be read: {why}")
            }
        }
    }
}
