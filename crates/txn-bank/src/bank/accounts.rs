//! The accounts of a bank: open, read, list and close.

use txn_core::{Error, Options};

use super::{MOST_RETRIES, is_exists};
use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::{NewAccount, check_name};
use crate::model::Account;
use crate::owning::listing::AccountPages;
use crate::transfers::closing::Closed;

impl Bank {
    /// Opens an account. The opening balance becomes a deposit in the ledger.
    ///
    /// The name of a closed account is not free.
    ///
    /// # Errors
    /// [`BankError::AccountExists`], [`BankError::AccountClosed`], or an error of the engine.
    pub async fn open_account(&self, new: &NewAccount) -> Result<Account> {
        let opened = self.domain.transact(async |tx| self.ledger.open_account(tx, new).await);
        opened.await.map_err(|error| match is_exists(&error) {
            true => BankError::AccountExists(new.name.clone()),
            false => error,
        })
    }

    /// Opens the missing accounts in one transaction. Returns their number.
    ///
    /// Several processes may call this at the same time.
    ///
    /// # Errors
    /// An error of the engine.
    pub async fn ensure_accounts(&self, new: &[NewAccount]) -> Result<usize> {
        let mut retries = 0;
        loop {
            let ensured = self
                .domain
                .transact::<_, BankError, _>(async |tx| self.ledger.open_missing(tx, new).await);
            match ensured.await {
                Err(error) if is_exists(&error) && retries < MOST_RETRIES => retries += 1,
                ensured => return ensured,
            }
        }
    }

    /// Reads accounts as of one moment, in a read-only transaction.
    ///
    /// # Errors
    /// [`BankError::UnknownAccount`], [`BankError::InvalidName`], or an error of the engine.
    pub async fn accounts<N: AsRef<str>>(&self, names: &[N]) -> Result<Vec<Account>> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        for name in &names {
            check_name(name)?;
        }
        let options = Options::default().with_read_only(true);
        let read = self.domain.run::<_, Error, _>(&options, async |tx| {
            tx.get_many(self.ledger.accounts(), names.iter().copied()).await
        });
        let found = read.await?.value;
        let known = names.iter().zip(found).map(|(name, account)| {
            account.ok_or_else(|| BankError::UnknownAccount((*name).to_owned()))
        });
        known.collect()
    }

    /// Lists the accounts of an owner by exact name, closed ones included.
    ///
    /// Servers search the field. Embedded stores scan all accounts. The list has all accounts that
    /// were opened before the call.
    ///
    /// # Errors
    /// [`BankError::Store`].
    pub async fn accounts_of(&self, owner: &str) -> Result<AccountPages<'_>> {
        AccountPages::of(&*self.store, &self.domain, self.ledger.accounts(), owner).await
    }

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
        self.domain.transact(async |tx| self.ledger.close(tx, name, to).await).await
    }
}
