//! Accounts that are closed. A closed account keeps its document, its ledger and its statement; no money moves in or out any
//! more, and its name is never used again: so what stands in the ledger under a name is always the same account.

use txn_core::Transaction;

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::{Leg, check_name};
use crate::model::{Account, CLOSING, Transfer};
use crate::rules;

/// An account that is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// The account.
    pub account: Account,
    /// The transfer that emptied it, if this call closed it and it held something.
    pub moved: Option<Transfer>,
    /// Whether it was closed before.
    pub already: bool,
}

impl Bank {
    /// Closes an account: one that holds nothing, or one whose rest goes to another account in the same transaction; what it
    /// owes is paid by the other. Transfers that come later are refused, and submitted ones that wait are rolled back when
    /// they are processed. There is no reopening. One that is closed stays as it is.
    ///
    /// # Errors
    /// [`BankError::NotEmpty`] without another account; those of [`BankError`] that speak of legs and accounts; the engine's.
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
