//! Looking through a collection for documents by a field.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_core::store::{Filter, Pages, StoreError};
use txn_core::{Domain, fields};

/// Documents that are asked for at once.
pub const PAGE: usize = 500;

/// The ids of documents that may match a filter: those that do, and those that a transaction holds, whose committed
/// content may not be in its place yet (a process may have died between). What they are a reader says, or a
/// transaction. At most about `most`, in the order of ids.
///
/// # Errors
/// As [`Store::scan`](txn_core::store::Store::scan).
pub async fn candidates(
    domain: &Domain,
    collection: &str,
    filter: Filter,
    most: usize,
) -> Result<BTreeSet<Arc<str>>, StoreError> {
    let store = domain.store();
    store.refresh(collection).await?;
    let mut ids = BTreeSet::new();
    // What is held first: once it is applied, the other scan shows it.
    for filter in [Filter::Exists(fields::TRANSACTION_TID), filter] {
        let mut pages = Pages::new(&**store, collection, filter, PAGE);
        while let Some(documents) = pages.next().await? {
            ids.extend(documents.into_iter().map(|(key, ..)| key.id));
            if ids.len() >= most {
                break;
            }
        }
    }
    Ok(ids)
}
