//! The rebuild of all owners from the accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use txn_core::Domain;
use txn_core::scan::{PAGE, candidates};
use txn_core::store::Filter;

use crate::error::{BankError, Result};
use crate::model::Account;
use crate::owning::owners::{Owners, key_of};

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

impl Owners {
    /// Rebuilds all owners, each in its own transaction.
    pub(crate) async fn rebuild(&self, domain: &Domain) -> Result<Rebuilt> {
        // By key: the owner, if an account names one, and the accounts.
        let mut wanted: BTreeMap<String, (Option<String>, BTreeSet<String>)> = BTreeMap::new();
        // Owners with a document may have no account any more.
        for id in candidates(domain, self.documents.name(), Filter::All, usize::MAX).await? {
            wanted.insert(id.to_string(), (None, BTreeSet::new()));
        }
        let ids = candidates(domain, self.accounts.name(), Filter::All, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().collect();
        let mut rebuilt = Rebuilt::default();
        for ids in ids.chunks(PAGE) {
            for (id, account) in self.readable(domain, ids, &mut rebuilt).await? {
                let key = key_of(&account.owner).into_owned();
                let (owner, names) = wanted.entry(key).or_default();
                *owner = Some(account.owner);
                names.insert(id.to_string());
            }
        }
        for (key, (owner, names)) in &wanted {
            let is_there = domain.transact::<_, BankError, _>(async |tx| {
                self.derive(tx, key, owner.as_deref(), names).await
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
        domain: &Domain,
        ids: &'a [Arc<str>],
        rebuilt: &mut Rebuilt,
    ) -> Result<Vec<(&'a Arc<str>, Account)>> {
        let reader = domain.reader().verified();
        if let Ok(found) = reader.get_many(&self.accounts, ids).await {
            let pairs = ids.iter().zip(found);
            return Ok(pairs.filter_map(|(id, account)| Some((id, account?))).collect());
        }
        // Reads them one by one, to find the unreadable account.
        let mut accounts = Vec::with_capacity(ids.len());
        for id in ids {
            match reader.get(&self.accounts, id).await {
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
