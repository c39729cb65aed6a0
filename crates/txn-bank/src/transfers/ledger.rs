//! The accounts and the ledger: changes inside a transaction.
//!
//! A change of an account writes the account, the ledger entry, the line of the statement, and the
//! event of the owner.

use std::sync::Arc;

use txn_core::clock::Clock;
use txn_core::{Collection, Transaction, Typed};

use crate::error::{BankError, Result};
use crate::input::{Leg, NewAccount};
use crate::model::{Account, CLOSING, DEPOSIT, Entry, Kind, Rest, Transfer};
use crate::owning::owners::Owners;
use crate::statement_lines::statements::{Change, LineKind, Statements};
use crate::transfers::closing::Closed;
use crate::transfers::rules;
use crate::transfers::transfer::{Status, TransferOptions};

/// The accounts and transfers of a bank, and their kept changes.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    accounts: Collection<Typed<Account>>,
    transfers: Collection<Typed<Transfer>>,
    /// The derived owners, if the bank keeps them.
    owners: Option<Owners>,
    /// The statements, if the bank keeps them.
    statements: Option<Statements>,
    clock: Arc<dyn Clock>,
}

impl Ledger {
    /// Creates a ledger without owners and statements.
    pub(crate) fn new(
        accounts: Collection<Typed<Account>>,
        transfers: Collection<Typed<Transfer>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { accounts, transfers, owners: None, statements: None, clock }
    }

    pub(crate) fn with_owners(self, owners: Owners) -> Self {
        Self { owners: Some(owners), ..self }
    }

    pub(crate) fn with_statements(self, statements: Statements) -> Self {
        Self { statements: Some(statements), ..self }
    }

    pub(crate) fn accounts(&self) -> &Collection<Typed<Account>> {
        &self.accounts
    }

    pub(crate) fn transfers(&self) -> &Collection<Typed<Transfer>> {
        &self.transfers
    }

    pub(crate) fn owners(&self) -> Option<&Owners> {
        self.owners.as_ref()
    }

    pub(crate) fn statements(&self) -> Option<&Statements> {
        self.statements.as_ref()
    }

    /// Returns the time in milliseconds since the Unix epoch.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    /// Opens an account, unless the name is in use.
    pub(crate) async fn open_account(&self, tx: &Transaction, new: &NewAccount) -> Result<Account> {
        let found = tx.get(&self.accounts, new.name.as_str()).await?;
        is_free(new, found.as_ref())?;
        self.insert_account(tx, new).await
    }

    /// Opens the missing accounts. Returns their number.
    pub(crate) async fn open_missing(&self, tx: &Transaction, new: &[NewAccount]) -> Result<usize> {
        let names = new.iter().map(|account| account.name.as_str());
        let found = tx.get_many(&self.accounts, names).await?;
        let missing = new.iter().zip(found).filter(|(_, found)| found.is_none());
        let mut opened = 0;
        for (account, _) in missing {
            self.insert_account(tx, account).await?;
            opened += 1;
        }
        Ok(opened)
    }

    /// Makes a transfer, unless its key has moved the money before.
    pub(crate) async fn move_money(
        &self,
        tx: &Transaction,
        key: &str,
        legs: &[Leg],
        options: &TransferOptions,
        extras: Option<&str>,
    ) -> Result<(Status, Transfer)> {
        let Self { accounts, transfers, .. } = self;
        let names = legs.iter().map(|leg| leg.account.as_str());
        let (mut found, earlier) =
            futures::try_join!(tx.get_many(accounts, names), tx.get(transfers, key))?;
        if let Some(earlier) = earlier {
            let same = rules::same_legs(&earlier.legs, legs) && earlier.extras.as_deref() == extras;
            return match same {
                true => Ok((Status::AlreadyDone, earlier)),
                false => Err(BankError::KeyReused(key.to_owned())),
            };
        }
        for new in &options.open {
            let at = legs.iter().position(|leg| leg.account == new.name);
            let at = at.ok_or_else(|| BankError::NoLeg(new.name.clone()))?;
            is_free(new, found[at].as_ref())?;
            found[at] = Some(self.insert_account(tx, new).await?);
        }
        let (after, entries) = rules::apply(legs, found)?;
        if !options.pause.is_zero() {
            self.clock.sleep(options.pause).await;
        }
        Ok((Status::Done, self.record(tx, key, legs, after, entries, extras).await?))
    }

    /// Closes an account, and moves its balance to another account.
    pub(crate) async fn close(
        &self,
        tx: &Transaction,
        name: &str,
        to: Option<&str>,
    ) -> Result<Closed> {
        let accounts = &self.accounts;
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
            if let Some(owners) = &self.owners {
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

    async fn insert_account(&self, tx: &Transaction, new: &NewAccount) -> Result<Account> {
        let Self { accounts, transfers, .. } = self;
        let now = self.now();
        let mut account = Account {
            owner: new.owner.clone(),
            balance: new.deposit,
            currency: new.currency,
            overdraft: new.overdraft,
            opened_at: now,
            closed_at: None,
            statement: None,
            rest: Rest::default(),
        };
        let key = format!("{DEPOSIT}{}", new.name);
        if let Some(statements) = &self.statements {
            let (kind, amount) = (LineKind::Deposit, new.deposit);
            let change = Change { kind, transfer: &key, amount, now };
            statements.note(tx, &new.name, &mut account, &change)?;
        }
        let entry =
            Entry { account: new.name.clone(), amount: new.deposit, currency: new.currency };
        let legs = vec![entry];
        let deposit =
            Transfer { kind: Kind::Deposit, key: key.clone(), legs, created_at: now, extras: None };
        tx.insert(accounts, new.name.as_str(), &account)?;
        tx.insert(transfers, key, &deposit)?;
        if let Some(owners) = &self.owners {
            owners.changed(tx, [(new.name.as_str(), new.owner.as_str())]).await?;
        }
        Ok(account)
    }

    /// Writes the accounts, the ledger entry, statement lines and events.
    async fn record(
        &self,
        tx: &Transaction,
        key: &str,
        legs: &[Leg],
        mut after: Vec<Account>,
        mut entries: Vec<Entry>,
        extras: Option<&str>,
    ) -> Result<Transfer> {
        let Self { accounts, transfers, .. } = self;
        let now = self.now();
        for (leg, account) in legs.iter().zip(&mut after) {
            if let Some(statements) = &self.statements {
                let (kind, amount) = (LineKind::Transfer, leg.amount);
                let change = Change { kind, transfer: key, amount, now };
                statements.note(tx, &leg.account, account, &change)?;
            }
            tx.put(accounts, leg.account.as_str(), account)?;
        }
        if let Some(owners) = &self.owners {
            let changed = legs.iter().zip(&after);
            let changed = changed.map(|(leg, account)| (&*leg.account, &*account.owner));
            owners.changed(tx, changed).await?;
        }
        entries.sort();
        let (kind, key) = (Kind::Transfer, key.to_owned());
        let extras = extras.map(str::to_owned);
        let transfer = Transfer { kind, key: key.clone(), legs: entries, created_at: now, extras };
        tx.insert(transfers, key, &transfer)?;
        Ok(transfer)
    }
}

/// Checks that the name of a new account is free.
fn is_free(new: &NewAccount, found: Option<&Account>) -> Result<()> {
    match found {
        None => Ok(()),
        Some(Account { closed_at: Some(_), .. }) => Err(BankError::AccountClosed(new.name.clone())),
        Some(_) => Err(BankError::AccountExists(new.name.clone())),
    }
}
