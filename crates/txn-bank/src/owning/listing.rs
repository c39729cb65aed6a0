//! Lists of accounts by their owner.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_core::store::{Filter, Pages, Store, fields};
use txn_core::{Collection, Domain, Typed};

use crate::error::Result;
use crate::model::Account;

/// The number of accounts per request.
const PAGE: usize = 500;

/// The accounts of an owner, page by page.
///
/// Each page shows its accounts as of its own read. Several pages are no snapshot;
/// [`Bank::accounts`](crate::Bank::accounts) reads one. An account that is opened during the
/// listing may be missing.
#[derive(Debug)]
pub struct AccountPages<'a> {
    domain: &'a Domain,
    accounts: &'a Collection<Typed<Account>>,
    owner: String,
    /// The first scan: locked documents, which may have unapplied content.
    held: Option<Pages<'a>>,
    matching: Pages<'a>,
    /// The ids that were found and are not read yet.
    found: Vec<Arc<str>>,
    /// The shown accounts. Both scans, and a restarted one, may find an account.
    shown: BTreeSet<Arc<str>>,
}

impl<'a> AccountPages<'a> {
    /// Starts the list after a refresh.
    ///
    /// The refresh shows the scans all acknowledged writes.
    pub(crate) async fn of(
        store: &'a dyn Store,
        domain: &'a Domain,
        accounts: &'a Collection<Typed<Account>>,
        owner: &str,
    ) -> Result<Self> {
        let name = accounts.name();
        store.refresh(name).await?;
        let pages = |filter| Pages::new(store, name, filter, PAGE);
        let held = Some(pages(Filter::Exists(fields::TRANSACTION_TID)));
        let matching = pages(Filter::any_of("owner", [owner]));
        let owner = owner.to_owned();
        let (found, shown) = (Vec::new(), BTreeSet::new());
        Ok(Self { domain, accounts, owner, held, matching, found, shown })
    }
}

impl AccountPages<'_> {
    /// Returns the next accounts with their names, or `None` at the end.
    ///
    /// The accounts have no order. A page may be empty.
    ///
    /// # Errors
    /// [`BankError::Store`](crate::BankError::Store), or an error of the engine. The next call
    /// repeats the same page.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the next call repeats the same page, or restarts the scan
    /// and shows no account twice.
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
        let reader = self.domain.reader().verified();
        let accounts = reader.get_many(self.accounts, &self.found).await?;
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
