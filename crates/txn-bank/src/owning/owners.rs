//! Derived owners: one document per owner, with the total over all accounts.
//!
//! The documents are in an index of their own. Each transaction that changes an account emits an
//! event of its owner. The handler of the event reads the accounts again, and writes the document.

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

/// The topic of the events. The key of an event is that of an owner.
pub const TOPIC: &str = "owners";

/// The maximum number of bytes of a queue's key.
const MOST_KEY: usize = 300;

/// The newest format of owners.
const NEWEST: u32 = 1;

const MAPPINGS: &str = r#"{"settings":{"auto_expand_replicas":"0-1"},"mappings":{"dynamic":"strict","properties":{"format":{"type":"integer"},"owner":{"type":"keyword"},"accounts":{"type":"keyword"},"totals":{"type":"nested","properties":{"currency":{"type":"keyword"},"total":{"type":"long"}}}}}}"#;

/// An owner, derived from the accounts.
///
/// A running processor updates the document within moments of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Owner {
    format: Format<NEWEST>,
    /// The name of the owner.
    pub owner: String,
    /// The names of the open accounts.
    pub accounts: BTreeSet<String>,
    /// The sums of the balances, by currency.
    pub totals: Vec<OwnerTotal>,
}

/// The sum of an owner's balances in one currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OwnerTotal {
    /// The currency of the summed balances.
    pub currency: Currency,
    /// The sum in minor units.
    pub total: i64,
}

/// The payload of an event: changed accounts of an owner.
#[derive(Debug, Deserialize)]
struct Changed {
    accounts: BTreeSet<String>,
    /// The name of the owner, if the key is shortened.
    owner: Option<String>,
}

/// The key of an owner's queue and document: the name, possibly shortened.
///
/// A long name is replaced by its beginning and a hash of the whole name. Stored documents depend
/// on this function, so it must never change.
pub(crate) fn key_of(owner: &str) -> Cow<'_, str> {
    if owner.len() <= MOST_KEY {
        return Cow::Borrowed(owner);
    }
    Cow::Owned(name::shortened(owner, MOST_KEY))
}

/// The owners of a bank, and the events that update them.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    pub(crate) outbox: Outbox,
    pub(super) documents: Collection<Versioned<Owner, NEWEST>>,
    pub(super) accounts: Collection<Typed<Account>>,
}

impl Owners {
    /// The name of the owners' collection. Owners are kept if the collection exists.
    pub(crate) fn collection(domain: &str) -> String {
        format!("{domain}-owners")
    }

    pub(crate) async fn open(
        domain: &Domain,
        accounts: Collection<Typed<Account>>,
    ) -> Result<Self> {
        let outbox = Outbox::open(domain, OutboxConfig::default()).await?;
        // Creates the outbox first: a process that sees the owners then finds the outbox.
        let name = Self::collection(domain.name());
        let documents = domain.create_collection(&name, Some(MAPPINGS)).await?;
        Ok(Self { outbox, documents, accounts })
    }

    /// Reads an owner, as last derived.
    pub(crate) async fn owner(&self, domain: &Domain, owner: &str) -> Result<Owner> {
        let key = key_of(owner);
        let found = domain.reader().verified().get(&self.documents, &*key).await?;
        let found = found.map(|found| self.known(&key, found)).transpose()?;
        let is_theirs = |found: &Owner| found.owner == owner;
        found.filter(is_theirs).ok_or_else(|| BankError::UnknownOwner(owner.to_owned()))
    }

    /// The owner, or an error if the format is newer.
    fn known(&self, key: &str, found: Stored<Owner>) -> Result<Owner, OutboxError> {
        found.known().map_err(|format| {
            let document = format!("{}/{key}", self.documents.name());
            OutboxError::NewerFormat { document, format }
        })
    }

    /// Emits one event for each owner of changed accounts, in the transaction.
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

    /// Writes the document of an owner from the accounts.
    ///
    /// Without a name, the document or the key names the owner. Returns whether the owner still has
    /// an account.
    pub(crate) async fn derive(
        &self,
        tx: &Transaction,
        key: &str,
        owner: Option<&str>,
        named: &BTreeSet<String>,
    ) -> Result<bool> {
        let found = tx.get(&self.documents, key).await?;
        let before = found.map(|found| self.known(key, found)).transpose()?;
        let known = before.as_ref().map(|before| before.owner.as_str());
        let owner = owner.or(known.filter(|known| key_of(known) == key)).unwrap_or(key);
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
        let Changed { accounts, owner } = delivery.event().payload().map_err(Failure::permanent)?;
        let derived = delivery
            .transact::<_, BankError, _>(async |tx| {
                self.derive(tx, &key, owner.as_deref(), &accounts).await
            })
            .await;
        match derived {
            Ok(_) => Ok(()),
            Err(BankError::Outbox(error)) => Err((*error).into()),
            Err(BankError::Engine(error)) => Err(error.into()),
            // A retry has the same result, until a transfer changes the total.
            Err(error @ BankError::TotalTooLarge { .. }) => Err(Failure::permanent(error)),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_owners_have_short_unique_keys() {
        for owner in ["Ann".to_owned(), "x".repeat(200), "\u{e9}".repeat(150)] {
            assert_eq!(key_of(&owner), owner);
        }
        // With one byte before it, the character boundary is at another position.
        let long = ["\u{1f98a}".repeat(200), format!("x{}", "\u{1f98a}".repeat(199))];
        let other = format!("{}z", "\u{1f98a}".repeat(199));
        let keys = [key_of(&long[0]), key_of(&long[1]), key_of(&other)];
        for key in &keys {
            assert!(key.len() <= MOST_KEY && key.len() > 290, "{key}");
        }
        assert_ne!(keys[0], keys[2]);
        // The key of a stored document must never change.
        assert!(keys[0].ends_with("#a959b6228227eeba6a2ab2419eacdcb0"), "{}", keys[0]);
    }
}
