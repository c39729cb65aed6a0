//! Looking through a collection for documents by a field.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_core::store::{Cursor, Filter, Pages, StoreError};
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
    let held = Filter::Exists(fields::TRANSACTION_TID);
    let others = Some(filter).filter(|filter| *filter != held);
    // What is held first: once it is applied, the other scan shows it.
    for filter in [Some(held), others].into_iter().flatten() {
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

/// As [`candidates`], about `most` of those that match, and from where an earlier look ended. Returns where the next one goes on;
/// `None` if nothing is left. What matches since the first look is found by the one after the last.
///
/// # Errors
/// As [`Store::scan`](txn_core::store::Store::scan); also if too much time has passed since the earlier look: then begin anew.
pub async fn candidates_from(
    domain: &Domain,
    collection: &str,
    filter: Filter,
    most: usize,
    from: Option<Cursor>,
) -> Result<(BTreeSet<Arc<str>>, Option<Cursor>), StoreError> {
    let store = domain.store();
    let held = Filter::Exists(fields::TRANSACTION_TID);
    let mut ids = candidates(domain, collection, held, usize::MAX).await?;
    let (mut seen, mut from) = (0, from);
    loop {
        let page = store.scan(collection, &filter, PAGE, from).await?;
        seen += page.documents.len();
        ids.extend(page.documents.into_iter().map(|(key, ..)| key.id));
        from = page.next;
        if from.is_none() || seen >= most {
            return Ok((ids, from));
        }
    }
}
