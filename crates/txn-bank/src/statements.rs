//! Statements, as they are written: a line for every change of a balance, in the transaction that makes the change. The lines
//! of an account are documents that are numbered without a gap, and the account says how many there are. So whoever has
//! read an account knows the ids of its lines, and that they are there: none is searched for.

use serde::{Deserialize, Serialize};
use txn_core::{Collection, Domain, Transaction};
use txn_lock::stored::{Format, Stored, Versioned};

use crate::error::{BankError, Result};
use crate::model::{Account, Currency, Noted};

/// The newest format of lines.
const NEWEST: u32 = 1;

const MAPPINGS: &str = r#"{"settings":{"auto_expand_replicas":"0-1"},"mappings":{"dynamic":"strict","properties":{"format":{"type":"integer"},"account":{"type":"keyword"},"number":{"type":"long"},"kind":{"type":"keyword"},"transfer":{"type":"keyword"},"amount":{"type":"long"},"balance":{"type":"long"},"currency":{"type":"keyword"},"at":{"type":"date","format":"epoch_millis"}}}}"#;

/// A line of a statement. Once written it is never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Line {
    format: Format<NEWEST>,
    /// Whose.
    pub account: String,
    /// Its number within the account, from 1, in the order of the commits.
    pub number: u64,
    /// What changed the balance.
    pub kind: LineKind,
    /// The key of the transfer or deposit, if one did.
    pub transfer: Option<String>,
    /// What the account got, in minor units; negative: what it gave.
    pub amount: i64,
    /// The balance afterwards.
    pub balance: i64,
    /// Of what.
    pub currency: Currency,
    /// When, in milliseconds since the Unix epoch, by the wall clock of whoever did it; never earlier than the line before.
    pub at: u64,
}

/// What changed a balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LineKind {
    /// The opening of the account.
    Deposit,
    /// A transfer.
    Transfer,
    /// What was changed without lines: before they were kept, or by a process that had opened the bank before.
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
    /// The name of their collection: where it exists, statements are kept.
    pub(crate) fn collection(domain: &str) -> String {
        format!("{domain}-statements")
    }

    pub(crate) async fn open(domain: &Domain) -> Result<Self> {
        let name = Self::collection(domain.name());
        Ok(Self { lines: domain.create_collection(&name, Some(MAPPINGS)).await? })
    }

    /// The id of a line. Never changed: lines are found under it.
    pub(crate) fn id(account: &str, number: u64) -> String {
        format!("{account}:{number:012}")
    }

    /// Writes the line of a change, and notes it in the account, which has the balance behind the change.
    pub(crate) fn note(
        &self,
        tx: &Transaction,
        name: &str,
        account: &mut Account,
        change: &Change<'_>,
    ) -> Result<()> {
        let &Change { kind, transfer, amount, now } = change;
        let mut noted = account.statement.unwrap_or_default();
        noted.at = noted.at.max(now);
        if let Some(carried) = unlisted(name, account, amount)? {
            self.write(tx, name, account, &mut noted, (LineKind::Carried, None, carried))?;
        }
        self.write(tx, name, account, &mut noted, (kind, Some(transfer), amount))?;
        account.statement = Some(noted);
        Ok(())
    }

    fn write(
        &self,
        tx: &Transaction,
        name: &str,
        account: &Account,
        noted: &mut Noted,
        (kind, transfer, amount): (LineKind, Option<&str>, i64),
    ) -> Result<()> {
        noted.lines += 1;
        noted.balance += amount;
        let line = Line {
            format: Format,
            account: name.to_owned(),
            number: noted.lines,
            kind,
            transfer: transfer.map(str::to_owned),
            amount,
            balance: noted.balance,
            currency: account.currency,
            at: noted.at,
        };
        // Not an insert: an attempt whose account is out of date would be told that the line exists, and not that it is.
        Ok(tx.put(&self.lines, Self::id(name, noted.lines), &Stored::Known(line))?)
    }
}

/// By how much the balance before a change of `amount` is not that of the last line.
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
    /// What was changed since the last line without one, as a line that is not stored.
    pub(crate) fn carried(name: &str, account: &Account, now: u64) -> Result<Option<Self>> {
        let noted = account.statement.unwrap_or_default();
        let Some(amount) = unlisted(name, account, 0)? else { return Ok(None) };
        Ok(Some(Self {
            format: Format,
            account: name.to_owned(),
            number: noted.lines + 1,
            kind: LineKind::Carried,
            transfer: None,
            amount,
            balance: account.balance,
            currency: account.currency,
            at: noted.at.max(now),
        }))
    }
}
