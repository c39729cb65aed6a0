//! The bank: accounts and transfers. Each change is one transaction.

use std::sync::Arc;
use std::time::Duration;

use txn_core::clock::Clock;
use txn_core::store::Store;
use txn_core::{AttemptId, Collection, Config, Domain, Error, Options, TransactionOutcome, Typed};
use txn_outbox::{Outbox, OutboxConfig};

use crate::audit::Voided;
use crate::audit::voided::VoidedLocks;
use crate::collections::{self, ACCOUNTS, TRANSFERS};
use crate::error::{BankError, Result};
use crate::input::check_name;
use crate::model::{Account, Transfer};
use crate::owning::owners::Owners;
use crate::statement_lines::statements::Statements;

/// A handle of a bank. Cheap to clone.
///
/// A bank is a domain with two collections, `<domain>-accounts` and `<domain>-transfers`.
#[derive(Clone, Debug)]
pub struct Bank {
    store: Arc<dyn Store>,
    domain: Domain,
    accounts: Collection<Typed<Account>>,
    transfers: Collection<Typed<Transfer>>,
    /// The derived owners, if the bank keeps them.
    owners: Option<Owners>,
    /// The statements, if the bank keeps them.
    statements: Option<Statements>,
    /// The outbox of the domain, if it exists.
    outbox: Option<Outbox>,
    voided: Arc<VoidedLocks>,
}

impl Bank {
    /// Opens a bank, and creates a missing one.
    ///
    /// # Errors
    /// [`BankError::Engine`] as [`Domain::open_or_create`] and [`Domain::create_collection`].
    pub async fn create(store: Arc<dyn Store>, domain: &str, config: Config) -> Result<Self> {
        let (config, voided) = VoidedLocks::observe(config);
        let domain = Domain::open_or_create(store.clone(), domain, config).await?;
        Self::in_domain(store, domain, voided).await
    }

    /// Opens an existing bank.
    ///
    /// # Errors
    /// [`BankError::NotInitialised`] before any write, if the bank is missing;
    /// [`BankError::Engine`] as [`Domain::open`] and [`Domain::create_collection`].
    pub async fn open(store: Arc<dyn Store>, domain: &str, config: Config) -> Result<Self> {
        let (accounts, transfers) = collections::names(domain);
        for name in [accounts, transfers] {
            if !collections::exists(&*store, &name).await? {
                return Err(BankError::NotInitialised { domain: domain.to_owned() });
            }
        }
        let (config, voided) = VoidedLocks::observe(config);
        let domain = Domain::open(store.clone(), domain, config).await?;
        Self::in_domain(store, domain, voided).await
    }

    async fn in_domain(
        store: Arc<dyn Store>,
        domain: Domain,
        voided: Arc<VoidedLocks>,
    ) -> Result<Self> {
        let (accounts, transfers) = collections::names(domain.name());
        // Adds mappings of new fields to the collections of an older version.
        let accounts = domain.create_collection(&accounts, Some(ACCOUNTS)).await?;
        let transfers = domain.create_collection(&transfers, Some(TRANSFERS)).await?;
        let (owners, statements, outbox) = (None, None, None);
        let bank = Self { store, domain, accounts, transfers, owners, statements, outbox, voided };
        bank.with_what_is_kept().await
    }

    async fn with_what_is_kept(self) -> Result<Self> {
        let domain = self.domain.name().to_owned();
        let mut bank = self;
        if collections::exists(&*bank.store, &bank.domain.collection_name("outbox")).await? {
            bank.outbox = Some(Outbox::open(&bank.domain, OutboxConfig::default()).await?);
        }
        if collections::exists(&*bank.store, &Owners::collection(&domain)).await? {
            bank = bank.keep_owners().await?;
        }
        if collections::exists(&*bank.store, &Statements::collection(&domain)).await? {
            bank = bank.keep_statements().await?;
        }
        Ok(bank)
    }

    pub(crate) fn with_owners(self, owners: Option<Owners>) -> Self {
        Self { owners, ..self }
    }

    pub(crate) fn owners(&self) -> Option<&Owners> {
        self.owners.as_ref()
    }

    /// The outbox of the domain, if it existed when the bank opened.
    pub(crate) fn known_outbox(&self) -> Option<&Outbox> {
        self.owners().map(|owners| &owners.outbox).or(self.outbox.as_ref())
    }

    /// The outbox of the domain. Creates a missing one.
    ///
    /// # Errors
    /// As [`Outbox::open`].
    pub async fn outbox(&self) -> Result<Outbox> {
        match self.known_outbox() {
            Some(outbox) => Ok(outbox.clone()),
            None => Ok(Outbox::open(&self.domain, OutboxConfig::default()).await?),
        }
    }

    pub(crate) fn with_statements(self, statements: Option<Statements>) -> Self {
        Self { statements, ..self }
    }

    pub(crate) fn statements(&self) -> Option<&Statements> {
        self.statements.as_ref()
    }

    /// The domain, for calls that the bank does not offer.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.domain.config().clock()
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

    /// The locks without a record that this process voided.
    pub(crate) fn voided(&self) -> Vec<Voided> {
        self.voided.seen()
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.clock().wall().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn random(&self) -> u64 {
        self.domain.config().entropy().next_u64()
    }

    /// A random key for a new transfer.
    #[must_use]
    pub fn new_key(&self) -> String {
        format!("{:016x}{:08x}", self.random(), self.random() >> 32)
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
            tx.get_many(&self.accounts, names.iter().copied()).await
        });
        let found = read.await?.value;
        let known = names.iter().zip(found).map(|(name, account)| {
            account.ok_or_else(|| BankError::UnknownAccount((*name).to_owned()))
        });
        known.collect()
    }

    /// Reads a transfer by its key, without a transaction.
    ///
    /// # Errors
    /// [`BankError::UnknownTransfer`], or an error of the engine.
    pub async fn transfer_of(&self, key: &str) -> Result<Transfer> {
        let found = self.domain.reader().verified().get(&self.transfers, key).await?;
        found.ok_or_else(|| BankError::UnknownTransfer(key.to_owned()))
    }

    /// The outcome of a transaction that was unknown.
    ///
    /// # Errors
    /// An error of the engine.
    pub async fn outcome(&self, tid: AttemptId) -> Result<TransactionOutcome> {
        Ok(self.domain.outcome(tid).await?)
    }

    /// Refuses new transactions, and waits for the running ones.
    ///
    /// The wait ends after `deadline`. Returns whether all commits of this process are applied.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.domain.shutdown(deadline).await
    }
}
