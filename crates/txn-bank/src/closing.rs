//! Closed accounts.
//!
//! A closed account keeps its document, its ledger and its statement, and accepts no transfer. The
//! name of a closed account is never used again, so a name in the ledger always means the same
//! account.

use txn_core::Transaction;

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::{Leg, check_name};
use crate::model::{Account, CLOSING, Transfer};
use crate::transfers::rules;

/// The result of a call that closes an account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// The account.
    pub account: Account,
    /// The transfer that emptied the account, if this call made one.
    pub moved: Option<Transfer>,
    /// Whether the account was already closed.
    pub already: bool,
}

impl Bank {
    /// Closes an account, and moves its balance to another account.
    ///
    /// The account must be empty, or `to` must name an account that receives the balance, or pays
    /// the debt, in the same transaction. Later transfers are refused, and waiting submitted
    /// transfers are rolled back at their execution. An account never reopens. A repeated call
    /// changes nothing.
    ///
    /// # Errors
    /// [`BankError::NotEmpty`] without another account; errors of [`BankError`] about legs and
    /// accounts; errors of the engine.
    pub async fn close(&self, name: &str, to: Option<&str>) -> Result<Closed> {
        check_name(name)?;
        to.map_or(Ok(()), check_name)?;
        if to == Some(name) {
            return Err(BankError::DuplicateLeg(name.to_owned()));
        }
        self.domain().transact(async |tx| self.close_in(tx, name, to).await).await
    }

    async fn close_in(&self, tx: &Transaction, name: &str, to: Option<&str>) -> Result<Closed> {
        let accounts = self.collections().0;
        let unknown = || BankError::UnknownAccount(name.to_owned());
        let mut account = tx.get(accounts, name).await?.ok_or_else(unknown)?;
        if account.closed_at.is_some() {
            return Ok(Closed { account, moved: None, already: true });
        }
        let closed_at = Some(self.now());
        let Account { balance, currency, .. } = account;
        if balance == 0 {
            account.closed_at = closed_at;
            tx.put(accounts, name, &account)?;
            if let Some(owners) = self.owners() {
                owners.changed(tx, [(name, account.owner.as_str())]).await?;
            }
            return Ok(Closed { account, moved: None, already: false });
        }
        let Some(to) = to else {
            return Err(BankError::NotEmpty { account: name.to_owned(), balance, currency });
        };
        let amount = balance.checked_neg();
        let amount = amount.ok_or_else(|| BankError::AmountTooLarge(balance.to_string()))?;
        let legs = [Leg::new(name, amount), Leg::new(to, balance)];
        let other = tx.get(accounts, to).await?;
        let (mut after, entries) = rules::apply(&legs, vec![Some(account), other])?;
        after[0].closed_at = closed_at;
        let moved =
            self.record(tx, &format!("{CLOSING}{name}"), &legs, after, entries, None).await?;
        let account = tx.get(accounts, name).await?.ok_or_else(unknown)?;
        Ok(Closed { account, moved: Some(moved), already: false })
    }
}
