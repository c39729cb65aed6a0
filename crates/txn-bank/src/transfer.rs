//! What changes accounts: they are opened, and money moves between them.

use std::time::Duration;

use txn_core::{AttemptId, ErrorKind, Options, Transaction};
use txn_outbox::http::{HttpRequest, HttpRequests};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::{Leg, NewAccount};
use crate::model::{Account, DEPOSIT, Entry, Kind, Rest, Transfer};
use crate::rules;
use crate::statements::{Change, LineKind};

/// How often a transaction that lost the race for a new document looks again at what won.
const LOOKS: usize = 3;

/// Whether a transfer moved money now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It did.
    Done,
    /// It was done before, under the same key.
    AlreadyDone,
}

/// A transfer that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Whether money moved now.
    pub status: Status,
    /// The transfer as it is stored.
    pub transfer: Transfer,
    /// The transaction that did it; `None` if it was found done.
    pub tid: Option<AttemptId>,
    /// How many attempts the transaction took, from 1.
    pub attempts: u32,
}

/// How a transfer is carried out.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransferOptions {
    /// The options of its transaction.
    pub transaction: Options,
    /// A pause between reading the accounts and writing them, as of an application that asks another
    /// service in between.
    pub pause: Duration,
    /// Accounts that are opened in the transaction of the transfer, before money moves: with it or not at all.
    pub open: Vec<NewAccount>,
    /// HTTP requests that are kept with the transfer and performed once it is done, at least once, by a
    /// [`Dispatcher`](txn_outbox::http::Dispatcher).
    pub after_commit: Vec<HttpRequest>,
}

impl TransferOptions {
    /// Sets [`TransferOptions::transaction`].
    #[must_use]
    pub fn with_transaction(mut self, options: Options) -> Self {
        self.transaction = options;
        self
    }

    /// Sets [`TransferOptions::pause`].
    #[must_use]
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets [`TransferOptions::open`].
    #[must_use]
    pub fn with_open(mut self, open: impl IntoIterator<Item = NewAccount>) -> Self {
        self.open = open.into_iter().collect();
        self
    }

    /// Sets [`TransferOptions::after_commit`].
    #[must_use]
    pub fn with_after_commit(mut self, calls: impl IntoIterator<Item = HttpRequest>) -> Self {
        self.after_commit = calls.into_iter().collect();
        self
    }
}

impl Bank {
    /// Opens an account. Its opening balance is a deposit that the ledger keeps. The name of a closed account is not
    /// used again.
    ///
    /// # Errors
    /// [`BankError::AccountExists`], [`BankError::AccountClosed`], or the engine's.
    pub async fn open_account(&self, new: &NewAccount) -> Result<Account> {
        let opened = self.domain().transact(async |tx| {
            let found = tx.get(self.collections().0, new.name.as_str()).await?;
            is_free(new, found.as_ref())?;
            self.insert_account(tx, new).await
        });
        opened.await.map_err(|error| match is_exists(&error) {
            true => BankError::AccountExists(new.name.clone()),
            false => error,
        })
    }

    /// Opens those of the accounts that are not open yet, all in one transaction; several may do so at once.
    /// Returns how many this call opened.
    ///
    /// # Errors
    /// The engine's.
    pub async fn ensure_accounts(&self, new: &[NewAccount]) -> Result<usize> {
        let mut looks = 0;
        loop {
            let ensured = self.domain().transact(async |tx| {
                let names = new.iter().map(|account| account.name.as_str());
                let found = tx.get_many(self.collections().0, names).await?;
                let missing = new.iter().zip(found).filter(|(_, found)| found.is_none());
                let mut opened = 0;
                for (account, _) in missing {
                    self.insert_account(tx, account).await?;
                    opened += 1;
                }
                Ok::<usize, BankError>(opened)
            });
            match ensured.await {
                Err(error) if is_exists(&error) && looks < LOOKS => looks += 1,
                ensured => return ensured,
            }
        }
    }

    async fn insert_account(&self, tx: &Transaction, new: &NewAccount) -> Result<Account> {
        let (accounts, transfers) = self.collections();
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
        if let Some(statements) = self.statements() {
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
        if let Some(owners) = self.owners() {
            owners.changed(tx, [(new.name.as_str(), new.owner.as_str())]).await?;
        }
        Ok(account)
    }

    /// Moves money between any number of accounts: all of it or nothing. Under one key money moves once; without a
    /// key the bank makes one.
    ///
    /// # Errors
    /// Those of [`BankError`] that speak of legs, accounts and keys, or the engine's.
    pub async fn transfer(&self, key: Option<&str>, legs: &[Leg]) -> Result<Transferred> {
        self.transfer_with(key, legs, &TransferOptions::default()).await
    }

    /// As [`Bank::transfer`], with options.
    ///
    /// # Errors
    /// As [`Bank::transfer`]; [`BankError::AccountExists`] for an account that was to be opened.
    pub async fn transfer_with(
        &self,
        key: Option<&str>,
        legs: &[Leg],
        options: &TransferOptions,
    ) -> Result<Transferred> {
        let key = key.map_or_else(|| self.new_key(), str::to_owned);
        rules::check_transfer(Some(&key), legs)?;
        let calls = match options.after_commit.is_empty() {
            true => None,
            false => Some(HttpRequests::new(&self.outbox().await?)),
        };
        for (calls, call) in
            calls.iter().flat_map(|of| options.after_commit.iter().map(move |call| (of, call)))
        {
            calls.check(call)?;
        }
        let extras = rules::extras(&options.open, &options.after_commit)?;
        let mut looks = 0;
        loop {
            let done = self.domain().run(&options.transaction, async |tx| {
                let moved = self.move_money(tx, &key, legs, options, extras.as_deref()).await;
                let (status, transfer) = moved?;
                if let (Some(calls), Status::Done) = (&calls, status) {
                    for call in &options.after_commit {
                        calls.after_commit(tx, call).await?;
                    }
                }
                Ok::<_, BankError>((status, transfer))
            });
            match done.await {
                Ok(done) => {
                    let ((status, transfer), receipt) = (done.value, done.receipt);
                    let (tid, attempts) = (receipt.tid, receipt.attempts);
                    return Ok(Transferred { status, transfer, tid, attempts });
                }
                // Somebody else used the key at the same moment: what they made is there now.
                Err(error) if is_exists(&error) && looks < LOOKS => looks += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn move_money(
        &self,
        tx: &Transaction,
        key: &str,
        legs: &[Leg],
        options: &TransferOptions,
        extras: Option<&str>,
    ) -> Result<(Status, Transfer)> {
        let (accounts, transfers) = self.collections();
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
            self.clock().sleep(options.pause).await;
        }
        Ok((Status::Done, self.record(tx, key, legs, after, entries, extras).await?))
    }

    /// Writes a transfer: the accounts as they are after it, the ledger, and what else is kept of them.
    pub(crate) async fn record(
        &self,
        tx: &Transaction,
        key: &str,
        legs: &[Leg],
        mut after: Vec<Account>,
        mut entries: Vec<Entry>,
        extras: Option<&str>,
    ) -> Result<Transfer> {
        let (accounts, transfers) = self.collections();
        let now = self.now();
        for (leg, account) in legs.iter().zip(&mut after) {
            if let Some(statements) = self.statements() {
                let (kind, amount) = (LineKind::Transfer, leg.amount);
                let change = Change { kind, transfer: key, amount, now };
                statements.note(tx, &leg.account, account, &change)?;
            }
            tx.put(accounts, leg.account.as_str(), account)?;
        }
        if let Some(owners) = self.owners() {
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

/// Whether an account of that name can be opened.
fn is_free(new: &NewAccount, found: Option<&Account>) -> Result<()> {
    match found {
        None => Ok(()),
        Some(Account { closed_at: Some(_), .. }) => Err(BankError::AccountClosed(new.name.clone())),
        Some(_) => Err(BankError::AccountExists(new.name.clone())),
    }
}

fn is_exists(error: &BankError) -> bool {
    matches!(error, BankError::Engine(error) if error.kind() == ErrorKind::Exists)
}
