//! The collections that operations name, each opened once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use txn_core::Domain;
use txn_core::store::{CollectionSpec, Role, StoreErrorKind};

use crate::contents::request::Operation;
use crate::error::{RequestError, Result};
use crate::processing::apply::{Handle, Handles};

/// The maximum number of open collections in memory.
const MOST_COLLECTIONS: usize = 1_000;

/// The system collections of a domain, without the domain's prefix.
///
/// Requests, locks, the outbox and idempotent transactions own these collections. Operations must
/// not change them.
const KEPT: [&str; 6] =
    ["requests", "processors", "locks", "outbox", "http-results", "idempotency"];

/// The prefix of the engine's collections.
const ENGINE: &str = "txn-";

/// The suffix of collections with past versions of another collection.
const HISTORY: &str = "-history";

/// The collection of the requests of a domain.
pub(crate) fn collection(domain: &Domain) -> String {
    domain.collection_name("requests")
}

/// The open collections of a domain.
pub(crate) struct OpenHandles {
    domain: Domain,
    open: Mutex<Handles>,
    /// The physical names of system collections, because their names may be aliases.
    kept: Mutex<BTreeMap<&'static str, Arc<str>>>,
}

impl fmt::Debug for OpenHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenHandles").finish_non_exhaustive()
    }
}

impl OpenHandles {
    /// Creates an empty set.
    pub(crate) fn new(domain: &Domain) -> Self {
        Self { domain: domain.clone(), open: Mutex::default(), kept: Mutex::default() }
    }

    /// Refuses a protected collection by its name.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        let within = name.strip_prefix(&self.domain.collection_name(""));
        let is_kept = name.starts_with(ENGINE)
            || name.ends_with(HISTORY)
            || within.is_some_and(|rest| KEPT.contains(&rest));
        if is_kept { Err(refused(name)) } else { Ok(()) }
    }

    /// Refuses a protected collection by its physical name.
    ///
    /// The name of a system collection may be an alias of a collection with another name.
    async fn check_opened(&self, name: &str) -> Result<()> {
        self.check(name)?;
        for kept in KEPT {
            if !self.kept.lock().contains_key(kept) {
                let (name, role) = (self.domain.collection_name(kept), Role::Data { owner: None });
                let spec = CollectionSpec { name, role, create: false, mappings: None };
                match self.domain.store().open_collection(&spec).await {
                    Ok(ours) => {
                        self.kept.lock().insert(kept, ours.name.clone());
                        // An operation may have opened the collection before it became a system
                        // collection.
                        self.open.lock().retain(|_, handle| handle.raw.name() != &*ours.name);
                    }
                    // The system collection does not exist yet.
                    Err(error) if error.kind == StoreErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        match self.kept.lock().values().any(|kept| **kept == *name) {
            true => Err(refused(name)),
            false => Ok(()),
        }
    }

    /// The collections that operations name.
    pub(crate) async fn of(&self, operations: &[Operation]) -> Result<Handles> {
        let mut handles = Handles::new();
        for target in operations.iter().map(Operation::target) {
            let name = &target.collection;
            if !handles.contains_key(name) {
                handles.insert(name.clone(), self.open(name).await?);
            }
        }
        Ok(handles)
    }

    /// A collection that was opened before.
    pub(crate) fn known(&self, name: &str) -> Option<Handle> {
        self.open.lock().get(name).cloned()
    }

    /// Opens each collection again at its next use.
    pub(crate) fn forget(&self) {
        self.open.lock().clear();
    }

    pub(crate) async fn open(&self, name: &str) -> Result<Handle> {
        if let Some(handle) = self.known(name) {
            return Ok(handle);
        }
        // Checks the name before the open, because the open claims the collection for the domain.
        self.check(name)?;
        let (raw, values) =
            (self.domain.collection(name).await?, self.domain.collection(name).await?);
        let handle = Handle { raw, values };
        self.check_opened(handle.raw.name()).await?;
        let mut open = self.open.lock();
        if open.len() >= MOST_COLLECTIONS {
            open.clear();
        }
        open.insert(name.to_owned(), handle.clone());
        Ok(handle)
    }
}

fn refused(name: &str) -> RequestError {
    let name: String = name.chars().take(100).collect();
    let why = format!("the collection {name} is reserved: no operation may change it");
    RequestError::Invalid(why)
}
