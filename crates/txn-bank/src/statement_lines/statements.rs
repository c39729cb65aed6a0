//! Writes of statements: one line for each change of a balance.
//!
//! The transaction of the change writes the line. The lines of an account are numbered without
//! gaps, and the account has their number. A reader of the account therefore knows the ids of all
//! lines, and needs no search.

use serde::{Deserialize, Serialize};
use txn_core::{Collection, Domain, Transaction};
use txn_lock::stored::{Format, Stored, Versioned};

use crate::error::{BankError, Result};
use crate::model::{Account, Currency, StatementEnd};

/// The newest format of lines.
const NEWEST: u32 = 1;

const MAPPINGS: &str = r#"{"settings":{"auto_expand_replicas":"0-1"},"mappings":{"dynamic":"strict","properties":{"format":{"type":"integer"},"account":{"type":"keyword"},"number":{"type":"long"},"kind":{"type":"keyword"},"transfer":{"type":"keyword"},"amount":{"type":"long"},"balance":{"type":"long"},"currency":{"type":"keyword"},"at":{"type":"date","format":"epoch_millis"}}}}"#;

/// A line of a statement. Lines never change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Line {
    format: Format<NEWEST>,
    /// The name of the account.
    pub account: String,
    /// The number of the line, from 1, in commit order.
    pub number: u64,
    /// The kind of the change.
    pub kind: LineKind,
    /// The key of the transfer or deposit, if there is one.
    pub transfer: Option<String>,
    /// The amount in minor units. A negative amount left the account.
    pub amount: i64,
    /// The balance after the change.
    pub balance: i64,
    /// The currency of the account.
    pub currency: Currency,
    /// The time of the change, in milliseconds since the Unix epoch.
    ///
    /// The wall clock of the changing process supplies the time, but never less than the time of
    /// the previous line.
    pub at: u64,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LineKind {
    /// The opening of the account.
    Deposit,
    /// A leg of a transfer between accounts.
    Transfer,
    /// Changes without lines: before statements, or by a bank opened before them.
    Carried,
}

/// A change of an account.
pub(crate) struct Change<'a> {
    pub(crate) kind: LineKind,
    pub(crate) transfer: &'a str,
    pub(crate) amount: i64,
    pub(crate) now: u64,
}

/// The lines of all accounts of a bank.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    pub(crate) lines: Collection<Versioned<Line, NEWEST>>,
}

impl Statements {
    /// The name of the lines' collection. Statements are kept if the collection exists.
    pub(crate) fn collection(domain: &str) -> String {
        format!("{domain}-statements")
    }

    pub(crate) async fn open(domain: &Domain) -> Result<Self> {
        let name = Self::collection(domain.name());
        Ok(Self { lines: domain.create_collection(&name, Some(MAPPINGS)).await? })
    }

    /// The id of a line. Stored lines depend on it, so it must never change.
    pub(crate) fn id(account: &str, number: u64) -> String {
        format!("{account}:{number:012}")
    }

    /// Writes the line of a change, and notes it in the account.
    ///
    /// The account already has the balance after the change.
    pub(crate) fn note(
        &self,
        tx: &Transaction,
        name: &str,
        account: &mut Account,
        change: &Change<'_>,
    ) -> Result<()> {
        let &Change { kind, transfer, amount, now } = change;
        let mut end = account.statement.unwrap_or_default();
        end.at = end.at.max(now);
        if let Some(carried) = unlisted(name, account, amount)? {
            self.write(tx, name, account, &mut end, (LineKind::Carried, None, carried))?;
        }
        self.write(tx, name, account, &mut end, (kind, Some(transfer), amount))?;
        account.statement = Some(end);
        Ok(())
    }

    fn write(
        &self,
        tx: &Transaction,
        name: &str,
        account: &Account,
        end: &mut StatementEnd,
        (kind, transfer, amount): (LineKind, Option<&str>, i64),
    ) -> Result<()> {
        end.lines += 1;
        end.balance += amount;
        let line = Line {
            format: Format,
            account: name.to_owned(),
            number: end.lines,
            kind,
            transfer: transfer.map(str::to_owned),
            amount,
            balance: end.balance,
            currency: account.currency,
            at: end.at,
        };
        // A put, because an insert by an outdated attempt would fail with `Exists` instead of a
        // retry.
        Ok(tx.put(&self.lines, Self::id(name, end.lines), &Stored::Known(line))?)
    }
}

/// The unlisted change between the last line and this change.
///
/// # Errors
/// [`BankError::Overflow`].
pub(crate) fn unlisted(name: &str, account: &Account, amount: i64) -> Result<Option<i64>> {
    let listed = account.statement.unwrap_or_default().balance;
    let before = account.balance.checked_sub(amount);
    let carried = before.and_then(|before| before.checked_sub(listed));
    let overflow = || BankError::Overflow { account: name.to_owned(), balance: listed, amount };
    Ok(Some(carried.ok_or_else(overflow)?).filter(|carried| *carried != 0))
}

impl Line {
    /// The changes since the last line, as an unstored line.
    pub(crate) fn carried(name: &str, account: &Account, now: u64) -> Result<Option<Self>> {
        let end = account.statement.unwrap_or_default();
        let Some(amount) = unlisted(name, account, 0)? else { return Ok(None) };
        Ok(Some(Self {
            format: Format,
            account: name.to_owned(),
            number: end.lines + 1,
            kind: LineKind::Carried,
            transfer: None,
            amount,
            balance: account.balance,
            currency: account.currency,
            at: end.at.max(now),
        }))
    }
}
