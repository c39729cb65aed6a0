//! Scans for documents that may match a filter.
//!
//! A search shows what was applied at some moment, so a match is a candidate: the transaction that
//! changes a document reads the document again, and decides.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use txn_core::scan::candidates;
//! use txn_core::store::Filter;
//! use txn_core::{Collection, Domain, Typed};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Seat {
//!     held_until_ms: Option<i64>,
//! }
//!
//! /// Frees the seats whose reservation has expired.
//! async fn sweep(
//!     domain: &Domain,
//!     seats: &Collection<Typed<Seat>>,
//!     now_ms: i64,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let expired = Filter::range("held_until_ms", ..now_ms);
//!     for id in candidates(domain, seats.name(), expired, 1_000).await? {
//!         domain
//!             .transact(async |tx| {
//!                 let Some(mut seat) = tx.get(seats, &*id).await? else { return Ok(()) };
//!                 if seat.held_until_ms.take_if(|until| *until < now_ms).is_some() {
//!                     tx.put(seats, &*id, &seat)?;
//!                 }
//!                 Ok::<_, txn_core::Error>(())
//!             })
//!             .await?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! `held_until_ms` must be mapped, as `long` or as `date` with the format `epoch_millis`. An event
//! with `not_before` (crate `txn-outbox`) needs no scan.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_store::{Cursor, Filter, Pages, StoreError, fields};

use crate::api::domain::Domain;

/// The number of documents per request.
pub const PAGE: usize = 500;

/// The ids of documents that may match a filter, in order.
///
/// The result also has the documents that a transaction holds: their committed content may not be
/// applied yet, for example because a process died. A reader or a transaction shows the real
/// content. A document that is applied during the scan may be missing; the next scan finds it. The
/// scan ends after about `most` ids, and a server then keeps its context for 90 s.
///
/// The ids have no routing, so the function is for collections without routing.
///
/// # Errors
/// As [`Store::scan`](txn_store::Store::scan).
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
/// As [`Store::scan`](txn_store::Store::scan). Also fails if too much time has passed since
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
