//! What a bank offers of its owners: keeping them, looking at them, building them anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use txn_core::store::Filter;
use txn_lock::scan::{PAGE, candidates};
use txn_outbox::{EventSource, Processor, ProcessorConfig};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::owners::{Owner, Owners, key_of};

/// What came of building all owners anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rebuilt {
    /// Owners that were written.
    pub written: usize,
    /// Owners without an account, that were deleted.
    pub deleted: usize,
}

impl Bank {
    /// From now on keeps a document for each owner, with the total over all accounts, in the collection `<domain>-owners`.
    /// Banks that are opened after this emit an event for the owner with every change of an account; those that are
    /// open already do not: have them opened again, and then [`Bank::rebuild_owners`] once.
    ///
    /// # Errors
    /// As [`txn_outbox::Outbox::open`] and [`txn_core::Domain::create_collection`].
    pub async fn keep_owners(self) -> Result<Self> {
        let owners = Owners::open(self.domain(), self.collections().0.clone()).await?;
        Ok(self.with_owners(Some(owners)))
    }

    /// Whether owners are kept.
    #[must_use]
    pub fn keeps_owners(&self) -> bool {
        self.owners().is_some()
    }

    fn kept(&self) -> Result<&Owners> {
        let domain = self.domain().name().to_owned();
        self.owners().ok_or(BankError::NoOwners { domain })
    }

    /// An owner, as last derived.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], [`BankError::UnknownOwner`], or the engine's.
    pub async fn owner(&self, owner: &str) -> Result<Owner> {
        let owners = self.kept()?;
        let key = key_of(owner);
        let found = self.domain().reader().verified().get(&owners.documents, &*key).await?;
        let found = found.map(|found| owners.known(&key, found)).transpose()?;
        let is_theirs = |found: &Owner| found.owner == owner;
        found.filter(is_theirs).ok_or_else(|| BankError::UnknownOwner(owner.to_owned()))
    }

    /// The events of this bank: what waits, and what was set aside.
    ///
    /// # Errors
    /// [`BankError::NoOwners`].
    pub fn events(&self) -> Result<Arc<dyn EventSource>> {
        Ok(self.kept()?.outbox.source())
    }

    /// Starts a processor that derives owners. Any number of them may run.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], or as [`Processor::start`].
    pub async fn derive_owners(&self, config: ProcessorConfig) -> Result<Processor> {
        let owners = self.kept()?;
        Ok(owners.outbox.start(config, owners.clone()).await?)
    }

    /// Builds all owners anew from the accounts, each in a transaction of its own. Transfers and processors may go on
    /// meanwhile: what they change is derived as ever.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], [`BankError::Store`], or the engine's. What was written stays: run it again.
    pub async fn rebuild_owners(&self) -> Result<Rebuilt> {
        let (owners, domain) = (self.kept()?, self.domain());
        // By key: whose it is, where an account says so, and the accounts.
        let mut wanted: BTreeMap<String, (Option<String>, BTreeSet<String>)> = BTreeMap::new();
        // Those that have a document, and perhaps no account.
        for id in candidates(domain, owners.documents.name(), Filter::All, usize::MAX).await? {
            wanted.insert(id.to_string(), (None, BTreeSet::new()));
        }
        let ids = candidates(domain, owners.accounts.name(), Filter::All, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().collect();
        for ids in ids.chunks(PAGE) {
            let found = domain.reader().verified().get_many(&owners.accounts, ids).await?;
            for (id, account) in ids.iter().zip(found) {
                let Some(account) = account else { continue };
                let key = key_of(&account.owner).into_owned();
                let (owner, names) = wanted.entry(key).or_default();
                *owner = Some(account.owner);
                names.insert(id.to_string());
            }
        }
        let mut rebuilt = Rebuilt::default();
        for (key, (owner, names)) in &wanted {
            let is_there = domain.transact::<_, BankError, _>(async |tx| {
                owners.derive(tx, key, owner.as_deref(), names).await
            });
            match is_there.await? {
                true => rebuilt.written += 1,
                false => rebuilt.deleted += 1,
            }
        }
        Ok(rebuilt)
    }
}
