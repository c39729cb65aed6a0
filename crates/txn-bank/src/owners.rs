//! What is derived from the accounts: for each owner one document with the total over all accounts, in an index of its own.
//! Every transaction that changes an account emits an event for its owner; whoever handles that loads the accounts afresh
//! and writes the document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;
use txn_core::store::{Filter, Store};
use txn_core::{Collection, Domain, Transaction, Typed};
use txn_lock::scan::{PAGE, candidates};
use txn_lock::stored::{Format, Stored, Versioned};
use txn_outbox::{
    Delivery, EventSource, Failure, Handler, Outbox, OutboxConfig, OutboxError, Processor,
    ProcessorConfig,
};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::model::{Account, Currency};

/// The topic of the events: the key is an owner.
const TOPIC: &str = "owners";

/// The newest format of owners.
const NEWEST: u32 = 1;

const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{"format":{"type":"integer"},"owner":{"type":"keyword"},"accounts":{"type":"keyword"},"totals":{"type":"nested","properties":{"currency":{"type":"keyword"},"total":{"type":"long"}}}}}"#;

/// An owner, as derived from the accounts. It follows them within moments of a processor that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Owner {
    format: Format<NEWEST>,
    /// Who.
    pub owner: String,
    /// The accounts, by name.
    pub accounts: BTreeSet<String>,
    /// What they hold together, by currency.
    pub totals: Vec<OwnerTotal>,
}

/// What an owner holds of one currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OwnerTotal {
    /// Of what.
    pub currency: Currency,
    /// How much, in minor units.
    pub total: i64,
}

/// What came of building all owners anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rebuilt {
    /// Owners that were written.
    pub written: usize,
    /// Owners without an account, that were deleted.
    pub deleted: usize,
}

/// What is told of the accounts of an owner.
#[derive(Debug, Deserialize)]
struct Changed {
    accounts: BTreeSet<String>,
}

/// The owners of a bank, and the events that keep them up to date.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    outbox: Outbox,
    documents: Collection<Versioned<Owner, NEWEST>>,
    accounts: Collection<Typed<Account>>,
}

impl Owners {
    /// The name of their collection: where it exists, owners are kept.
    pub(crate) fn collection(domain: &str) -> String {
        format!("{domain}-owners")
    }

    pub(crate) async fn open(
        domain: &Domain,
        accounts: Collection<Typed<Account>>,
    ) -> Result<Self> {
        let outbox = Outbox::open(domain, OutboxConfig::default()).await?;
        // The outbox first: whoever sees owners finds it.
        let name = Self::collection(domain.name());
        let documents = domain.create_collection(&name, Some(MAPPINGS)).await?;
        Ok(Self { outbox, documents, accounts })
    }

    /// Emits for the owners of accounts that a transaction changes: one event each, with it or not at all.
    pub(crate) async fn changed<'a>(
        &self,
        tx: &Transaction,
        changed: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), OutboxError> {
        let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (account, owner) in changed {
            owners.entry(owner).or_default().insert(account);
        }
        for (owner, accounts) in owners {
            self.outbox.emit(tx, TOPIC, owner, &json!({ "accounts": accounts })).await?;
        }
        Ok(())
    }

    /// Emits for accounts by their names.
    pub(crate) async fn changed_by_name(
        &self,
        tx: &Transaction,
        names: &BTreeSet<&str>,
    ) -> Result<(), OutboxError> {
        let found = tx.get_many(&self.accounts, names.iter().copied()).await?;
        let owned = names.iter().zip(&found);
        let owned = owned.filter_map(|(name, found)| Some((*name, found.as_ref()?.owner.as_str())));
        self.changed(tx, owned).await
    }

    /// Writes the document of an owner, as the accounts stand. Returns whether there is one afterwards.
    async fn derive(
        &self,
        tx: &Transaction,
        owner: &str,
        named: &BTreeSet<String>,
    ) -> Result<bool> {
        let before = match tx.get(&self.documents, owner).await? {
            None => None,
            Some(Stored::Known(before)) => Some(before),
            Some(Stored::Newer(format)) => {
                let document = format!("{}/{owner}", self.documents.name());
                return Err(OutboxError::NewerFormat { document, format }.into());
            }
        };
        let known = before.as_ref().map(|before| before.accounts.clone()).unwrap_or_default();
        let names: BTreeSet<String> = known.union(named).cloned().collect();
        let found = tx.get_many(&self.accounts, &names).await?;
        let (mut accounts, mut totals) = (BTreeSet::new(), BTreeMap::<Currency, i128>::new());
        for (name, account) in names.into_iter().zip(found) {
            let Some(account) = account.filter(|account| account.owner == owner) else { continue };
            *totals.entry(account.currency).or_default() += i128::from(account.balance);
            accounts.insert(name);
        }
        if accounts.is_empty() {
            tx.delete(&self.documents, owner)?;
            return Ok(false);
        }
        let total = |(currency, total): (Currency, i128)| {
            let too_much = || BankError::TotalTooLarge { owner: owner.to_owned(), currency };
            Ok(OwnerTotal { currency, total: i64::try_from(total).map_err(|_| too_much())? })
        };
        let totals = totals.into_iter().map(total).collect::<Result<Vec<_>>>()?;
        let after = Owner { format: Format, owner: owner.to_owned(), accounts, totals };
        if before.as_ref() != Some(&after) {
            tx.put(&self.documents, owner, &Stored::Known(after))?;
        }
        Ok(true)
    }
}

#[async_trait]
impl Handler for Owners {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let owner = delivery.event().queue.key().to_owned();
        let Changed { accounts } = delivery.event().payload().map_err(Failure::hopeless)?;
        let derived = delivery
            .transact::<_, BankError, _>(async |tx| self.derive(tx, &owner, &accounts).await)
            .await;
        match derived {
            Ok(_) => Ok(()),
            Err(BankError::Outbox(error)) => Err((*error).into()),
            Err(BankError::Engine(error)) => Err(error.into()),
            // It is so whenever it is tried, until somebody moves money.
            Err(error @ BankError::TotalTooLarge { .. }) => Err(Failure::hopeless(error)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Bank {
    /// From now on keeps a document for each owner, with the total over all accounts, in the collection `<domain>-owners`.
    /// Banks that are opened after this emit an event for the owner with every change of an account; those that are
    /// open already do not: have them opened again, and then [`Bank::rebuild_owners`] once.
    ///
    /// # Errors
    /// As [`Outbox::open`] and [`Domain::create_collection`].
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
        let documents = &self.kept()?.documents;
        match self.domain().reader().verified().get(documents, owner).await? {
            Some(Stored::Known(found)) => Ok(found),
            Some(Stored::Newer(format)) => {
                let document = format!("{}/{owner}", documents.name());
                Err(OutboxError::NewerFormat { document, format }.into())
            }
            None => Err(BankError::UnknownOwner(owner.to_owned())),
        }
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
        let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // Those that have a document, and perhaps no account.
        for id in candidates(domain, owners.documents.name(), Filter::All, usize::MAX).await? {
            wanted.insert(id.to_string(), BTreeSet::new());
        }
        let ids = candidates(domain, owners.accounts.name(), Filter::All, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().collect();
        for ids in ids.chunks(PAGE) {
            let found = domain.reader().verified().get_many(&owners.accounts, ids).await?;
            for (id, account) in ids.iter().zip(found) {
                let Some(account) = account else { continue };
                wanted.entry(account.owner).or_default().insert(id.to_string());
            }
        }
        let mut rebuilt = Rebuilt::default();
        for (owner, names) in &wanted {
            let is_there = domain
                .transact::<_, BankError, _>(async |tx| owners.derive(tx, owner, names).await);
            match is_there.await? {
                true => rebuilt.written += 1,
                false => rebuilt.deleted += 1,
            }
        }
        Ok(rebuilt)
    }
}

/// Whether a bank keeps owners.
pub(crate) async fn are_kept(store: &dyn Store, domain: &str) -> Result<bool> {
    use txn_core::store::{CollectionSpec, Role, StoreErrorKind};
    let (name, role) = (Owners::collection(domain), Role::Data { owner: None });
    let spec = CollectionSpec { name, role, create: false, mappings: None };
    match store.open_collection(&spec).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}
