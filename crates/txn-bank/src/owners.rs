//! What is derived from the accounts: for each owner one document with the total over all accounts, in an index of its own.
//! Every transaction that changes an account emits an event for its owner; whoever handles that loads the accounts afresh
//! and writes the document.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;
use txn_core::{Collection, Domain, Transaction, Typed};
use txn_lock::name;
use txn_lock::stored::{Format, Stored, Versioned};
use txn_outbox::{Delivery, Failure, Handler, Outbox, OutboxConfig, OutboxError};

use crate::error::{BankError, Result};
use crate::model::{Account, Currency};

/// The topic of the events: the key is that of an owner.
pub const TOPIC: &str = "owners";

/// Most bytes of the key of a queue.
const MOST_KEY: usize = 300;

/// The newest format of owners.
const NEWEST: u32 = 1;

const MAPPINGS: &str = r#"{"settings":{"auto_expand_replicas":"0-1"},"mappings":{"dynamic":"strict","properties":{"format":{"type":"integer"},"owner":{"type":"keyword"},"accounts":{"type":"keyword"},"totals":{"type":"nested","properties":{"currency":{"type":"keyword"},"total":{"type":"long"}}}}}}"#;

/// An owner, as derived from the accounts. It follows them within moments of a processor that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Owner {
    format: Format<NEWEST>,
    /// Who.
    pub owner: String,
    /// The accounts that are open, by name.
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
    /// Who, where the key says less.
    owner: Option<String>,
}

/// What the queue and the document of an owner are called: as the owner, or, if that is too long, as its beginning and a hash
/// of all of it. Never changed: documents are found under it.
pub(crate) fn key_of(owner: &str) -> Cow<'_, str> {
    if owner.len() <= MOST_KEY {
        return Cow::Borrowed(owner);
    }
    Cow::Owned(name::shortened(owner, MOST_KEY))
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

    /// What stands in an owner's document, unless its format is newer than this program.
    pub(crate) fn known(&self, key: &str, found: Stored<Owner>) -> Result<Owner, OutboxError> {
        found.known().map_err(|format| {
            let document = format!("{}/{key}", self.documents.name());
            OutboxError::NewerFormat { document, format }
        })
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
            let key = key_of(owner);
            let changed = match &key {
                Cow::Borrowed(_) => json!({ "accounts": accounts }),
                Cow::Owned(_) => json!({ "accounts": accounts, "owner": owner }),
            };
            self.outbox.emit(tx, TOPIC, &key, &changed).await?;
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

    /// Writes the document of an owner, as the accounts stand. Without a name, the owner is whom the document names, or the
    /// key. Returns whether there is one afterwards.
    pub(crate) async fn derive(
        &self,
        tx: &Transaction,
        key: &str,
        owner: Option<&str>,
        named: &BTreeSet<String>,
    ) -> Result<bool> {
        let found = tx.get(&self.documents, key).await?;
        let before = found.map(|found| self.known(key, found)).transpose()?;
        let noted = before.as_ref().map(|before| before.owner.as_str());
        let owner = owner.or(noted.filter(|noted| key_of(noted) == key)).unwrap_or(key);
        let known = before.as_ref().map(|before| before.accounts.clone()).unwrap_or_default();
        let names: BTreeSet<String> = known.union(named).cloned().collect();
        let found = tx.get_many(&self.accounts, &names).await?;
        let (mut accounts, mut totals) = (BTreeSet::new(), BTreeMap::<Currency, i128>::new());
        for (name, account) in names.into_iter().zip(found) {
            let is_theirs = |a: &Account| a.owner == owner && a.closed_at.is_none();
            let Some(account) = account.filter(is_theirs) else { continue };
            *totals.entry(account.currency).or_default() += i128::from(account.balance);
            accounts.insert(name);
        }
        if accounts.is_empty() {
            tx.delete(&self.documents, key)?;
            return Ok(false);
        }
        let total = |(currency, total): (Currency, i128)| {
            let too_much = || BankError::TotalTooLarge { owner: owner.to_owned(), currency };
            Ok(OwnerTotal { currency, total: i64::try_from(total).map_err(|_| too_much())? })
        };
        let totals = totals.into_iter().map(total).collect::<Result<Vec<_>>>()?;
        let after = Owner { format: Format, owner: owner.to_owned(), accounts, totals };
        if before.as_ref() != Some(&after) {
            tx.put(&self.documents, key, &Stored::Known(after))?;
        }
        Ok(true)
    }
}

#[async_trait]
impl Handler for Owners {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let key = delivery.event().queue.key().to_owned();
        let Changed { accounts, owner } = delivery.event().payload().map_err(Failure::hopeless)?;
        let derived = delivery
            .transact::<_, BankError, _>(async |tx| {
                self.derive(tx, &key, owner.as_deref(), &accounts).await
            })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_that_are_too_long_have_keys_that_fit() {
        for owner in ["Ann".to_owned(), "x".repeat(200), "\u{e9}".repeat(150)] {
            assert_eq!(key_of(&owner), owner);
        }
        // One byte before, the boundary of a character is elsewhere.
        let long = ["\u{1f98a}".repeat(200), format!("x{}", "\u{1f98a}".repeat(199))];
        let other = format!("{}z", "\u{1f98a}".repeat(199));
        let keys = [key_of(&long[0]), key_of(&long[1]), key_of(&other)];
        for key in &keys {
            assert!(key.len() <= MOST_KEY && key.len() > 290, "{key}");
        }
        assert_ne!(keys[0], keys[2]);
        // The key of a stored document never changes.
        assert!(keys[0].ends_with("#a959b6228227eeba6a2ab2419eacdcb0"), "{}", keys[0]);
    }
}
