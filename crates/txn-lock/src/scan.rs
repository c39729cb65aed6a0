//! Scans of a collection for documents with a certain field.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_core::store::{Cursor, Filter, Pages, StoreError};
use txn_core::{Domain, store::fields};

/// The number of documents per request.
pub const PAGE: usize = 500;

/// The ids of documents that may match a filter, in order.
///
/// The result also has the documents that a transaction holds: their committed content may not be
/// applied yet, for example because a process died. A reader or a transaction shows the real
/// content. The scan ends after about `most` ids.
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
    // Locked documents first: after their apply, the second scan finds them.
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

/// As [`candidates`], in steps of about `most` matches, from an earlier cursor.
///
/// Returns the cursor of the next step, or `None` at the end. A new full scan finds the matches
/// that appeared since the first step.
///
/// # Errors
/// As [`Store::scan`](txn_core::store::Store::scan). Also fails if too much time has passed since
/// the earlier step: then restart the scan.
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
