//! The API for derived owners: keep, read, and rebuild them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use txn_core::store::Filter;
use txn_lock::scan::{PAGE, candidates};
use txn_outbox::http::{self, Dispatcher, HttpConfig};
use txn_outbox::{EventSource, Processor, ProcessorConfig, Topics};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::model::Account;
use crate::owning::owners::{Owner, Owners, TOPIC, key_of};

/// The result of a rebuild of all owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rebuilt {
    /// The number of written owners.
    pub written: usize,
    /// The number of deleted owners without an account.
    pub deleted: usize,
    /// The failures and their reasons: keys of owners, and accounts as `account NAME`.
    pub failed: BTreeMap<String, String>,
}

impl Bank {
    /// Starts to keep a document for each owner, in the collection `<domain>-owners`.
    ///
    /// The document has the total over all accounts. Banks that are opened afterwards emit an event
    /// of the owner with each change of an account. Banks that are already open do not: open them
    /// again, and then call [`Bank::rebuild_owners`] once.
    ///
    /// # Errors
    /// As [`txn_outbox::Outbox::open`] and [`txn_core::Domain::create_collection`].
    pub async fn keep_owners(self) -> Result<Self> {
        let owners = Owners::open(self.domain(), self.collections().0.clone()).await?;
        Ok(self.with_owners(Some(owners)))
    }

    /// Whether the bank keeps owners.
    #[must_use]
    pub fn keeps_owners(&self) -> bool {
        self.owners().is_some()
    }

    fn kept(&self) -> Result<&Owners> {
        let domain = self.domain().name().to_owned();
        self.owners().ok_or(BankError::NoOwners { domain })
    }

    /// Reads an owner, as last derived.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], [`BankError::UnknownOwner`], or an error of the engine.
    pub async fn owner(&self, owner: &str) -> Result<Owner> {
        let owners = self.kept()?;
        let key = key_of(owner);
        let found = self.domain().reader().verified().get(&owners.documents, &*key).await?;
        let found = found.map(|found| owners.known(&key, found)).transpose()?;
        let is_theirs = |found: &Owner| found.owner == owner;
        found.filter(is_theirs).ok_or_else(|| BankError::UnknownOwner(owner.to_owned()))
    }

    /// The events of this bank: those of owners and HTTP requests.
    ///
    /// # Errors
    /// [`BankError::NoOwners`] if the bank had no outbox at its open.
    pub fn events(&self) -> Result<Arc<dyn EventSource>> {
        match self.known_outbox() {
            Some(outbox) => Ok(outbox.source()),
            None => Ok(self.kept()?.outbox.source()),
        }
    }

    /// Starts a processor that sends the HTTP requests of transfers.
    ///
    /// The settings limit the allowed requests. Any number of processors may run.
    ///
    /// # Errors
    /// As [`Dispatcher::open`] and [`Processor::start`].
    pub async fn dispatch(&self, config: ProcessorConfig, http: HttpConfig) -> Result<Processor> {
        let dispatcher = Dispatcher::open(self.domain(), http).await?;
        let topics = Topics::new().with(http::TOPIC, dispatcher);
        Ok(self.outbox().await?.start(config, topics).await?)
    }

    /// Starts a processor that derives owners. Any number of them may run.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], or as [`Processor::start`].
    pub async fn derive_owners(&self, config: ProcessorConfig) -> Result<Processor> {
        let owners = self.kept()?;
        // Events of other topics in the domain wait for other processors.
        let topics = Topics::new().with(TOPIC, owners.clone());
        Ok(owners.outbox.start(config, topics).await?)
    }

    /// Rebuilds all owners from the accounts, each in its own transaction.
    ///
    /// Transfers and processors may run during the rebuild. An unreadable account or owner does not
    /// stop the rebuild; [`Rebuilt::failed`] lists it.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], [`BankError::Store`], or an error of the engine about the store.
    /// Written owners stay. Repeat the call.
    pub async fn rebuild_owners(&self) -> Result<Rebuilt> {
        let (owners, domain) = (self.kept()?, self.domain());
        // By key: the owner, if an account names one, and the accounts.
        let mut wanted: BTreeMap<String, (Option<String>, BTreeSet<String>)> = BTreeMap::new();
        // Owners with a document may have no account any more.
        for id in candidates(domain, owners.documents.name(), Filter::All, usize::MAX).await? {
            wanted.insert(id.to_string(), (None, BTreeSet::new()));
        }
        let ids = candidates(domain, owners.accounts.name(), Filter::All, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().collect();
        let mut rebuilt = Rebuilt::default();
        for ids in ids.chunks(PAGE) {
            for (id, account) in self.readable(owners, ids, &mut rebuilt).await? {
                let key = key_of(&account.owner).into_owned();
                let (owner, names) = wanted.entry(key).or_default();
                *owner = Some(account.owner);
                names.insert(id.to_string());
            }
        }
        for (key, (owner, names)) in &wanted {
            let is_there = domain.transact::<_, BankError, _>(async |tx| {
                owners.derive(tx, key, owner.as_deref(), names).await
            });
            match is_there.await {
                Ok(true) => rebuilt.written += 1,
                Ok(false) => rebuilt.deleted += 1,
                Err(error) => rebuilt.note(key.clone(), error)?,
            }
        }
        Ok(rebuilt)
    }

    /// The readable accounts of these names. Notes the unreadable ones.
    async fn readable<'a>(
        &self,
        owners: &Owners,
        ids: &'a [Arc<str>],
        rebuilt: &mut Rebuilt,
    ) -> Result<Vec<(&'a Arc<str>, Account)>> {
        let reader = self.domain().reader().verified();
        if let Ok(found) = reader.get_many(&owners.accounts, ids).await {
            let pairs = ids.iter().zip(found);
            return Ok(pairs.filter_map(|(id, account)| Some((id, account?))).collect());
        }
        // Reads them one by one, to find the unreadable account.
        let mut accounts = Vec::with_capacity(ids.len());
        for id in ids {
            match reader.get(&owners.accounts, id).await {
                Ok(account) => accounts.extend(account.map(|account| (id, account))),
                Err(error) => rebuilt.note(format!("account {id}"), error.into())?,
            }
        }
        Ok(accounts)
    }
}

impl Rebuilt {
    /// Notes a failure, unless the failure concerns all accounts.
    fn note(&mut self, of: String, error: BankError) -> Result<()> {
        use txn_core::ErrorKind::{Misconfigured, Overloaded, Unavailable, Unknown};
        match &error {
            BankError::Store(_) => return Err(error),
            BankError::Engine(of_engine)
                if matches!(
                    of_engine.kind(),
                    Misconfigured | Overloaded | Unavailable | Unknown
                ) =>
            {
                return Err(error);
            }
            _ => self.failed.insert(of, error.to_string()),
        };
        Ok(())
    }
}
