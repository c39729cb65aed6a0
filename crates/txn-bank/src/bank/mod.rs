//! The bank: accounts and transfers. Each change is one transaction.
//!
//! The handle has the public calls. Its parts stand in the other folders, and do not name it.

mod accounts;
mod owners;
mod requests;
mod statements;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::Store;
use txn_core::{AttemptId, Config, Domain, ErrorKind, TransactionOutcome};
use txn_outbox::{Outbox, OutboxConfig};

use crate::audit::Audit;
use crate::audit::auditor::Auditor;
use crate::audit::voided::VoidedLocks;
use crate::collections::{self, ACCOUNTS, TRANSFERS};
use crate::error::{BankError, Result};
use crate::owning::owners::Owners;
use crate::statement_lines::statements::Statements;
use crate::transfers::ledger::Ledger;

/// The number of retries after a lost race for a new document.
const MOST_RETRIES: usize = 3;

/// A handle of a bank. Cheap to clone.
///
/// A bank is a domain with two collections, `<domain>-accounts` and `<domain>-transfers`.
#[derive(Clone, Debug)]
pub struct Bank {
    store: Arc<dyn Store>,
    domain: Domain,
    ledger: Ledger,
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
        let ledger = Ledger::new(accounts, transfers, domain.config().shared_clock());
        let bank = Self { store, domain, ledger, outbox: None, voided };
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

    /// The outbox of the domain, if it existed when the bank opened.
    fn known_outbox(&self) -> Option<&Outbox> {
        self.ledger.owners().map(|owners| &owners.outbox).or(self.outbox.as_ref())
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

    /// The domain, for calls that the bank does not offer.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The physical names of the collections of accounts and of transfers.
    #[must_use]
    pub fn collection_names(&self) -> [&str; 2] {
        [self.ledger.accounts().name(), self.ledger.transfers().name()]
    }

    pub(crate) fn random(&self) -> u64 {
        self.domain.config().entropy().next_u64()
    }

    /// A random key for a new transfer.
    #[must_use]
    pub fn new_key(&self) -> String {
        format!("{:016x}{:08x}", self.random(), self.random() >> 32)
    }

    /// Checks that no money was created or lost.
    ///
    /// With `recover`, the janitor first finishes transactions of crashed processes. Otherwise the
    /// audit changes nothing, and reports these transactions.
    ///
    /// # Errors
    /// Any error of the store. A wrong balance is a [`Finding`](crate::Finding), not an error.
    pub async fn audit(&self, recover: bool) -> Result<Audit> {
        let auditor = Auditor::new(&*self.store, &self.domain, &self.ledger, recover);
        let mut audit = auditor.audit().await?;
        audit.voided = self.voided.seen();
        Ok(audit)
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

fn is_exists(error: &BankError) -> bool {
    matches!(error, BankError::Engine(error) if error.kind() == ErrorKind::Exists)
}
