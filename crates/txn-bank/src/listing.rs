//! Accounts that are found by their owner.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_core::fields;
use txn_core::store::{Filter, Pages};

use crate::bank::Bank;
use crate::error::Result;
use crate::model::Account;

/// Accounts that are asked for at once.
const PAGE: usize = 500;

/// The accounts of an owner, page by page. Each is as it was when its page was read: several are no snapshot, which
/// [`Bank::accounts`] is. One that is opened meanwhile may be missing.
#[derive(Debug)]
pub struct AccountPages<'a> {
    bank: &'a Bank,
    owner: String,
    /// What is looked through: first what transactions hold, whose committed content may not be in its place yet.
    held: Option<Pages<'a>>,
    matching: Pages<'a>,
    /// The names that were looked at: both may show an account, and so does a scan that begins anew.
    seen: BTreeSet<Arc<str>>,
}

impl Bank {
    /// The accounts of an owner by the exact name, closed ones included. On servers the field is searched; embedded stores
    /// look through all accounts. Accounts that were opened before the call are found.
    ///
    /// # Errors
    /// [`BankError::Store`](crate::BankError::Store).
    pub async fn accounts_of(&self, owner: &str) -> Result<AccountPages<'_>> {
        let (store, name) = (self.store(), self.collections().0.name());
        store.refresh(name).await?;
        let pages = |filter| Pages::new(store, name, filter, PAGE);
        let held = Some(pages(Filter::Exists(fields::TRANSACTION_TID)));
        let matching = pages(Filter::Equals("owner", owner.into()));
        let owner = owner.to_owned();
        Ok(AccountPages { bank: self, owner, held, matching, seen: BTreeSet::new() })
    }
}

impl AccountPages<'_> {
    /// The next accounts with their names, in no order; `None` behind the last. A page may be empty.
    ///
    /// # Errors
    /// [`BankError::Store`](crate::BankError::Store), or the engine's.
    ///
    /// # Cancel safety
    /// Dropped, it has lost a page: begin anew.
    pub async fn next_page(&mut self) -> Result<Option<Vec<(String, Account)>>> {
        let found = match &mut self.held {
            Some(held) => match held.next().await? {
                Some(found) => found,
                None => {
                    self.held = None;
                    return Ok(Some(Vec::new()));
                }
            },
            None => match self.matching.next().await? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let ids: Vec<Arc<str>> = found.into_iter().map(|(key, ..)| key.id).collect();
        let ids: Vec<Arc<str>> = ids.into_iter().filter(|id| !self.seen.contains(id)).collect();
        let reader = self.bank.domain().reader().verified();
        let accounts = reader.get_many(self.bank.collections().0, &ids).await?;
        let mut theirs = Vec::new();
        for (id, account) in ids.into_iter().zip(accounts) {
            let Some(account) = account.filter(|account| account.owner == self.owner) else {
                continue;
            };
            theirs.push((id.to_string(), account));
            self.seen.insert(id);
        }
        Ok(Some(theirs))
    }
}
