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
    /// What was found and is to be read.
    found: Vec<Arc<str>>,
    /// The accounts that were shown: both scans may find one, and so does a scan that begins anew.
    shown: BTreeSet<Arc<str>>,
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
        let matching = pages(Filter::any_of("owner", [owner]));
        let owner = owner.to_owned();
        let (found, shown) = (Vec::new(), BTreeSet::new());
        Ok(AccountPages { bank: self, owner, held, matching, found, shown })
    }
}

impl AccountPages<'_> {
    /// The next accounts with their names, in no order; `None` behind the last. A page may be empty.
    ///
    /// # Errors
    /// [`BankError::Store`](crate::BankError::Store), or the engine's. The next call goes on with the same page.
    ///
    /// # Cancel safety
    /// Dropped, the next call goes on with the same page, or looks through the accounts again and shows none twice.
    pub async fn next_page(&mut self) -> Result<Option<Vec<(String, Account)>>> {
        while self.found.is_empty() {
            let page = match &mut self.held {
                Some(held) => held.next().await?,
                None => match self.matching.next().await? {
                    Some(page) => Some(page),
                    None => return Ok(None),
                },
            };
            match page {
                Some(page) => self.found = page.into_iter().map(|(key, ..)| key.id).collect(),
                None => self.held = None,
            }
            self.found.retain(|id| !self.shown.contains(id));
        }
        let reader = self.bank.domain().reader().verified();
        let accounts = reader.get_many(self.bank.collections().0, &self.found).await?;
        let mut theirs = Vec::new();
        for (id, account) in std::mem::take(&mut self.found).into_iter().zip(accounts) {
            let Some(account) = account.filter(|account| account.owner == self.owner) else {
                continue;
            };
            theirs.push((id.to_string(), account));
            self.shown.insert(id);
        }
        Ok(Some(theirs))
    }
}
