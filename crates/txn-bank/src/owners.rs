//! What is derived from the accounts: for each owner one document with the total over all accounts, in an index of its own.
//! Every transaction that changes an account emits an event for its owner; whoever handles that loads the accounts afresh
//! and writes the document.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;
use txn_core::store::Store;
use txn_core::{Collection, Domain, Transaction, Typed};
use txn_lock::stored::{Format, Stored, Versioned};
use txn_outbox::{Delivery, Failure, Handler, Outbox, OutboxConfig, OutboxError};

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

/// What is told of the accounts of an owner.
#[derive(Debug, Deserialize)]
struct Changed {
    accounts: BTreeSet<String>,
}

/// The owners of a bank, and the events that keep them up to date.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    pub(crate) outbox: Outbox,
    pub(crate) documents: Collection<Versioned<Owner, NEWEST>>,
    pub(crate) accounts: Collection<Typed<Account>>,
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
    pub(crate) async fn derive(
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
