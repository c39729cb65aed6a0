//! Closed accounts.
//!
//! A closed account keeps its document, its ledger and its statement, and accepts no transfer. The
//! name of a closed account is never used again, so a name in the ledger always means the same
//! account.

use crate::model::{Account, Transfer};

/// The result of a call that closes an account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// The account after it was closed.
    pub account: Account,
    /// The transfer that emptied the account, if this call made one.
    pub moved: Option<Transfer>,
    /// Whether the account was already closed.
    pub already: bool,
}
