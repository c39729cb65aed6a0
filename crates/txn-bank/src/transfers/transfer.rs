//! Changes of accounts: openings and transfers.

use std::time::Duration;

use txn_core::{AttemptId, ErrorKind, Options, Transaction};
use txn_outbox::http::{HttpRequest, HttpRequests};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::{Leg, NewAccount};
use crate::model::{Account, DEPOSIT, Entry, Kind, Rest, Transfer};
use crate::statement_lines::statements::{Change, LineKind};
use crate::transfers::rules;

/// The number of retries after a lost race for a new document.
const LOOKS: usize = 3;

/// Whether a transfer moved money in this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call moved the money.
    Done,
    /// An earlier call with the same key moved the money.
    AlreadyDone,
}

/// A finished transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Whether this call moved the money.
    pub status: Status,
    /// The stored transfer.
    pub transfer: Transfer,
    /// The transaction of this call. `None` if the transfer was already done.
    pub tid: Option<AttemptId>,
    /// The number of attempts of the transaction, from 1.
    pub attempts: u32,
}

/// Options of a transfer.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransferOptions {
    /// The options of the transaction.
    pub transaction: Options,
    /// A pause between the reads and the writes of the accounts.
    ///
    /// Simulates an application that calls another service in between.
    pub pause: Duration,
    /// Accounts that the transaction of the transfer opens first.
    pub open: Vec<NewAccount>,
    /// HTTP requests that are stored with the transfer.
    ///
    /// A [`Dispatcher`](txn_outbox::http::Dispatcher) sends them after the commit, at least once.
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
    /// Opens an account. The opening balance becomes a deposit in the ledger.
    ///
    /// The name of a closed account is not free.
    ///
    /// # Errors
    /// [`BankError::AccountExists`], [`BankError::AccountClosed`], or an error of the engine.
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

    /// Opens the missing accounts in one transaction. Returns their number.
    ///
    /// Several processes may call this at the same time.
    ///
    /// # Errors
    /// An error of the engine.
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

    /// Moves money between any number of accounts in one transaction.
    ///
    /// Money moves once per key. Without a key the bank generates one.
    ///
    /// # Errors
    /// Errors of [`BankError`] about legs, accounts and keys, or an error of the engine.
    pub async fn transfer(&self, key: Option<&str>, legs: &[Leg]) -> Result<Transferred> {
        self.transfer_with(key, legs, &TransferOptions::default()).await
    }

    /// As [`Bank::transfer`], with options.
    ///
    /// # Errors
    /// As [`Bank::transfer`]; [`BankError::AccountExists`] for an account to open.
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
                // Another process used the key at the same moment: read its transfer.
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

    /// Writes the accounts, the ledger entry, statement lines and events.
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

/// Checks that the name of a new account is free.
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
