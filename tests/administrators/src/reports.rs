//! The reports of the library by name.
//!
//! Events, errors, and results of janitor and audit.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use txn_core::event::{Event, Observer};
use txn_core::{Error, ErrorKind};
use txn_fixtures::complaints::without_names;

use crate::book::Role;
use crate::judge::Named;

/// The reports of all processes of a case.
#[derive(Debug)]
pub(crate) struct Reports {
    accounts: Vec<String>,
    entries: String,
    named: Mutex<Named>,
    /// The number of each report, without the names of documents.
    words: Mutex<BTreeMap<String, u64>>,
}

impl Reports {
    /// Creates an empty list of reports about these collections.
    ///
    /// The accounts may have several names.
    #[must_use]
    pub(crate) fn new(accounts: &[&str], entries: &str) -> Self {
        let accounts = accounts.iter().map(|&name| name.to_owned()).collect();
        let (named, words) = (Mutex::default(), Mutex::default());
        Self { accounts, entries: entries.to_owned(), named, words }
    }

    /// Records a report that names a document.
    pub(crate) fn name(&self, collection: &str, id: &str, what: &str) {
        let role = if self.accounts.iter().any(|name| name == collection) {
            Some(Role::Accounts)
        } else if collection == self.entries {
            Some(Role::Entries)
        } else {
            None
        };
        if let Some(role) = role.filter(|_| id != "*") {
            self.named.lock().documents.insert((role, id.to_owned()));
        }
        *self.words.lock().entry(without_names(what, id)).or_default() += 1;
    }

    /// Records the error of a caller.
    pub(crate) fn error(&self, error: &Error) {
        if let (ErrorKind::Damaged, Some(key)) = (error.kind(), error.document()) {
            self.name(&key.collection, &key.id, &error.to_string());
        }
    }

    /// Returns the documents that were named so far.
    #[must_use]
    pub(crate) fn named(&self) -> Named {
        self.named.lock().clone()
    }

    /// Returns the reports with their counts.
    #[must_use]
    pub(crate) fn words(&self) -> BTreeMap<String, u64> {
        self.words.lock().clone()
    }
}

impl Observer for Reports {
    fn on_event(&self, event: &Event) {
        if let Event::Damaged { document, what, .. } = event {
            self.name(&document.collection, &document.id, what);
        }
    }
}
