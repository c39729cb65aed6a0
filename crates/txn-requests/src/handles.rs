//! The collections that operations name, opened once.

use std::fmt;

use parking_lot::Mutex;
use txn_core::Domain;

use crate::apply::{Handle, Handles};
use crate::error::{RequestError, Result};
use crate::request::Operation;

/// Most collections that are remembered as open.
const MOST_COLLECTIONS: usize = 1_000;

/// The collection of the requests of a domain.
pub(crate) fn collection(domain: &Domain) -> String {
    format!("{}-requests", domain.name())
}

/// Collections as they are opened. One of them no operation may change.
pub(crate) struct OpenHandles {
    domain: Domain,
    kept: String,
    open: Mutex<Handles>,
}

impl fmt::Debug for OpenHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenHandles").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl OpenHandles {
    /// None yet. `kept` is the physical name of the collection of requests.
    pub(crate) fn new(domain: &Domain, kept: &str) -> Self {
        Self { domain: domain.clone(), kept: kept.to_owned(), open: Mutex::default() }
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
            let handle = match known {
                Some(handle) => handle,
                None => {
                    let (raw, values) =
                        (self.domain.collection(name).await?, self.domain.collection(name).await?);
                    Handle { raw, values }
                }
            };
            if handle.raw.name() == self.kept {
                return Err(RequestError::Invalid("a request cannot change requests".to_owned()));
            }
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
