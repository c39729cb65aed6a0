//! The bank: accounts and transfers, each change one transaction.

use std::sync::Arc;
use std::time::Duration;

use txn_core::clock::{Clock, Entropy};
use txn_core::store::{CollectionSpec, Role, Store, StoreErrorKind};
use txn_core::{Collection, Config, Domain, Error, ErrorKind, Options, Tid, TransactionOutcome};
use txn_core::{Transaction, Typed};

use crate::error::{BankError, Result};
use crate::input::{Leg, NewAccount, check_name};
use crate::model::{Account, DEPOSIT, Entry, Kind, Rest, Transfer};
use crate::owners::{self, Owners};
use crate::rules;

/// Field mappings of the accounts, for stores that have some.
const ACCOUNTS: &str = r#"{"dynamic":"strict","properties":{"owner":{"type":"keyword"},"balance":{"type":"long"},"currency":{"type":"keyword"},"overdraft":{"type":"boolean"},"opened_at":{"type":"date","format":"epoch_millis"}}}"#;

/// Field mappings of the transfers. Legs are nested, so that the transfers of an account can be searched.
const TRANSFERS: &str = r#"{"dynamic":"strict","properties":{"kind":{"type":"keyword"},"key":{"type":"keyword"},"legs":{"type":"nested","properties":{"account":{"type":"keyword"},"amount":{"type":"long"},"currency":{"type":"keyword"}}},"created_at":{"type":"date","format":"epoch_millis"}}}"#;

/// How often a transaction that lost the race for a new document looks again at what won.
const LOOKS: usize = 3;

/// A handle of a bank; cheap to clone. One bank is one domain with two collections, `<domain>-accounts`
/// and `<domain>-transfers`.
#[derive(Clone, Debug)]
pub struct Bank {
    store: Arc<dyn Store>,
    domain: Domain,
    accounts: Collection<Typed<Account>>,
    transfers: Collection<Typed<Transfer>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    /// What is derived from the accounts, if anything is.
    owners: Option<Owners>,
}

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
    pub tid: Option<Tid>,
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
}

impl Bank {
    /// Makes a bank, and opens it. One that exists is opened.
    ///
    /// # Errors
    /// [`BankError::Engine`] as [`Domain::create`] and [`Domain::create_collection`] say.
    pub async fn create(store: Arc<dyn Store>, domain: &str, config: Config) -> Result<Self> {
        let (clock, entropy) = (config.clock.clone(), config.entropy.clone());
        let domain = Domain::create(store.clone(), domain, config).await?;
        let (accounts, transfers) = collection_names(domain.name());
        let accounts = domain.create_collection(&accounts, Some(ACCOUNTS)).await?;
        let transfers = domain.create_collection(&transfers, Some(TRANSFERS)).await?;
        let bank = Self { store, domain, accounts, transfers, clock, entropy, owners: None };
        bank.with_what_is_kept().await
    }

    /// Opens a bank that exists.
    ///
    /// # Errors
    /// [`BankError::NotInitialised`] if there is none, before anything is written;
    /// [`BankError::Engine`] as [`Domain::open`] and [`Domain::collection`] say.
    pub async fn open(store: Arc<dyn Store>, domain: &str, config: Config) -> Result<Self> {
        let (accounts, transfers) = collection_names(domain);
        for name in [accounts, transfers] {
            let role = Role::Data { owner: None };
            let spec = CollectionSpec { name, role, create: false, mappings: None };
            if let Err(error) = store.open_collection(&spec).await {
                return Err(match error.kind {
                    StoreErrorKind::NotFound => {
                        BankError::NotInitialised { domain: domain.to_owned() }
                    }
                    _ => error.into(),
                });
            }
        }
        let (clock, entropy) = (config.clock.clone(), config.entropy.clone());
        let domain = Domain::open(store.clone(), domain, config).await?;
        let (accounts, transfers) = collection_names(domain.name());
        let accounts = domain.collection(&accounts).await?;
        let transfers = domain.collection(&transfers).await?;
        let bank = Self { store, domain, accounts, transfers, clock, entropy, owners: None };
        bank.with_what_is_kept().await
    }

    async fn with_what_is_kept(self) -> Result<Self> {
        match owners::are_kept(&*self.store, self.domain.name()).await? {
            true => self.keep_owners().await,
            false => Ok(self),
        }
    }

    pub(crate) fn with_owners(self, owners: Option<Owners>) -> Self {
        Self { owners, ..self }
    }

    pub(crate) fn owners(&self) -> Option<&Owners> {
        self.owners.as_ref()
    }

    /// The domain, for what the bank itself does not offer.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn collections(
        &self,
    ) -> (&Collection<Typed<Account>>, &Collection<Typed<Transfer>>) {
        (&self.accounts, &self.transfers)
    }

    /// The physical names of the collections of accounts and of transfers.
    #[must_use]
    pub fn collection_names(&self) -> [&str; 2] {
        [self.accounts.name(), self.transfers.name()]
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn random(&self) -> u64 {
        self.entropy.next_u64()
    }

    /// A key for a transfer that nobody else makes.
    #[must_use]
    pub fn new_key(&self) -> String {
        format!("{:016x}{:08x}", self.random(), self.random() >> 32)
    }

    /// Opens an account. Its opening balance is a deposit that the ledger keeps.
    ///
    /// # Errors
    /// [`BankError::AccountExists`], or the engine's.
    pub async fn open_account(&self, new: &NewAccount) -> Result<Account> {
        let opened = self.domain.transact(async |tx| {
            if tx.get(&self.accounts, new.name.as_str()).await?.is_some() {
                return Err(BankError::AccountExists(new.name.clone()));
            }
            self.insert_account(tx, new).await
        });
        opened.await.map_err(|error| match error {
            BankError::Engine(error) if error.kind() == ErrorKind::Exists => {
                BankError::AccountExists(new.name.clone())
            }
            error => error,
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
            let ensured = self.domain.transact(async |tx| {
                let names = new.iter().map(|account| account.name.as_str());
                let found = tx.get_many(&self.accounts, names).await?;
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
        let account = Account {
            owner: new.owner.clone(),
            balance: new.deposit,
            currency: new.currency,
            overdraft: new.overdraft,
            opened_at: self.now(),
            rest: Rest::default(),
        };
        let key = format!("{DEPOSIT}{}", new.name);
        let entry =
            Entry { account: new.name.clone(), amount: new.deposit, currency: new.currency };
        let deposit = Transfer {
            kind: Kind::Deposit,
            key: key.clone(),
            legs: vec![entry],
            created_at: account.opened_at,
        };
        tx.insert(&self.accounts, new.name.as_str(), &account)?;
        tx.insert(&self.transfers, key, &deposit)?;
        if let Some(owners) = &self.owners {
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
    /// As [`Bank::transfer`].
    pub async fn transfer_with(
        &self,
        key: Option<&str>,
        legs: &[Leg],
        options: &TransferOptions,
    ) -> Result<Transferred> {
        let key = key.map_or_else(|| self.new_key(), str::to_owned);
        rules::check_transfer(Some(&key), legs)?;
        let mut looks = 0;
        loop {
            let done = self.domain.run(&options.transaction, async |tx| {
                self.move_money(tx, &key, legs, options).await
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
    ) -> Result<(Status, Transfer)> {
        let names = legs.iter().map(|leg| leg.account.as_str());
        let (accounts, earlier) =
            futures::try_join!(tx.get_many(&self.accounts, names), tx.get(&self.transfers, key))?;
        if let Some(earlier) = earlier {
            return match rules::same_legs(&earlier.legs, legs) {
                true => Ok((Status::AlreadyDone, earlier)),
                false => Err(BankError::KeyReused(key.to_owned())),
            };
        }
        let (accounts, mut entries) = rules::apply(legs, accounts)?;
        if !options.pause.is_zero() {
            self.clock.sleep(options.pause).await;
        }
        for (leg, account) in legs.iter().zip(&accounts) {
            tx.put(&self.accounts, leg.account.as_str(), account)?;
        }
        if let Some(owners) = &self.owners {
            let changed = legs.iter().zip(&accounts);
            let changed = changed.map(|(leg, account)| (&*leg.account, &*account.owner));
            owners.changed(tx, changed).await?;
        }
        entries.sort();
        let transfer = Transfer {
            kind: Kind::Transfer,
            key: key.to_owned(),
            legs: entries,
            created_at: self.now(),
        };
        tx.insert(&self.transfers, key, &transfer)?;
        Ok((Status::Done, transfer))
    }

    /// Accounts as they stood at one moment, by a read-only transaction.
    ///
    /// # Errors
    /// [`BankError::UnknownAccount`], [`BankError::InvalidName`], or the engine's.
    pub async fn accounts<N: AsRef<str>>(&self, names: &[N]) -> Result<Vec<Account>> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        for name in &names {
            check_name(name)?;
        }
        let options = Options::default().with_read_only(true);
        let read = self.domain.run::<_, Error, _>(&options, async |tx| {
            tx.get_many(&self.accounts, names.iter().copied()).await
        });
        let found = read.await?.value;
        let known = names.iter().zip(found).map(|(name, account)| {
            account.ok_or_else(|| BankError::UnknownAccount((*name).to_owned()))
        });
        known.collect()
    }

    /// A transfer by its key, without a transaction.
    ///
    /// # Errors
    /// [`BankError::UnknownTransfer`], or the engine's.
    pub async fn transfer_of(&self, key: &str) -> Result<Transfer> {
        let found = self.domain.reader().verified().get(&self.transfers, key).await?;
        found.ok_or_else(|| BankError::UnknownTransfer(key.to_owned()))
    }

    /// What became of a transaction whose outcome was unknown.
    ///
    /// # Errors
    /// The engine's.
    pub async fn outcome(&self, tid: Tid) -> Result<TransactionOutcome> {
        Ok(self.domain.outcome(tid).await?)
    }

    /// Refuses new transactions and waits until those that run are applied, at most for `deadline`. Returns
    /// whether all of it was done.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.domain.shutdown(deadline).await
    }
}

fn is_exists(error: &BankError) -> bool {
    matches!(error, BankError::Engine(error) if error.kind() == ErrorKind::Exists)
}

fn collection_names(domain: &str) -> (String, String) {
    (format!("{domain}-accounts"), format!("{domain}-transfers"))
}
