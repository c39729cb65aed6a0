//! The collections that operations name, opened once.

use std::fmt;

use parking_lot::Mutex;
use txn_core::Domain;

use crate::apply::{Handle, Handles};
use crate::error::{RequestError, Result};
use crate::request::Operation;

/// Most collections that are remembered as open.
const MOST_COLLECTIONS: usize = 1_000;

/// What the collections of a domain are called, behind its name, that belong to requests, to locks and to the outbox: what
/// stands in them is not changed by operations.
const KEPT: [&str; 5] = ["requests", "processors", "locks", "outbox", "http-results"];

/// What the names of the engine's own collections begin with.
const ENGINE: &str = "txn-";

/// The collection of the requests of a domain.
pub(crate) fn collection(domain: &Domain) -> String {
    format!("{}-requests", domain.name())
}

/// Collections as they are opened.
pub(crate) struct OpenHandles {
    domain: Domain,
    open: Mutex<Handles>,
}

impl fmt::Debug for OpenHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenHandles").finish_non_exhaustive()
    }
}

impl OpenHandles {
    /// None yet.
    pub(crate) fn new(domain: &Domain) -> Self {
        Self { domain: domain.clone(), open: Mutex::default() }
    }

    /// Refuses what no operation may change.
    fn check(&self, name: &str) -> Result<()> {
        let within = name.strip_prefix(self.domain.name()).and_then(|rest| rest.strip_prefix('-'));
        match name.starts_with(ENGINE) || within.is_some_and(|rest| KEPT.contains(&rest)) {
            false => Ok(()),
            true => {
                let name: String = name.chars().take(100).collect();
                let why = format!(
                    "the collection {name} is kept for us: no operation changes what is in it"
                );
                Err(RequestError::Invalid(why))
            }
        }
    }

    /// The collections that operations name.
    pub(crate) async fn of(&self, operations: &[Operation]) -> Result<Handles> {
        let mut handles = Handles::new();
        for target in operations.iter().map(Operation::target) {
            let name = &target.collection;
            if handles.contains_key(name) {
                continue;
            }
            let known = self.open.lock().get(name).cloned();
            if let Some(handle) = known {
                handles.insert(name.clone(), handle);
                continue;
            }
            // Before it is opened, which claims it for the domain.
            self.check(name)?;
            let (raw, values) =
                (self.domain.collection(name).await?, self.domain.collection(name).await?);
            let handle = Handle { raw, values };
            // It may be named by an alias.
            self.check(handle.raw.name())?;
            let mut open = self.open.lock();
            if open.len() >= MOST_COLLECTIONS {
                open.clear();
            }
            open.insert(name.clone(), handle.clone());
            handles.insert(name.clone(), handle);
        }
        Ok(handles)
    }
}
