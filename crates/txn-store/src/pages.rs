//! A scan, page by page.

use crate::{Cursor, Filter, Key, Source, Store, StoreError, StoreErrorKind, Version};

/// The pages of a scan, one after the other. A cursor is used once, for it may have moved on though its page was lost. So
/// behind a lost page the scan begins anew, with smaller pages, and documents are shown again.
///
/// ```
/// use txn_store::{Filter, MemoryStore, Pages, StoreError};
///
/// async fn ids(store: &MemoryStore) -> Result<std::collections::BTreeSet<String>, StoreError> {
///     let mut pages = Pages::new(store, "orders", Filter::All, 500);
///     let mut ids = std::collections::BTreeSet::new();
///     while let Some(documents) = pages.next().await? {
///         ids.extend(documents.into_iter().map(|(key, ..)| key.id.to_string()));
///     }
///     Ok(ids)
/// }
/// ```
#[derive(Debug)]
pub struct Pages<'a> {
    store: &'a dyn Store,
    collection: String,
    filter: Filter,
    size: usize,
    at: At,
}

#[derive(Debug)]
enum At {
    Beginning,
    Cursor(Cursor),
    End,
    /// A page of one document was lost.
    Lost(StoreError),
}

impl<'a> Pages<'a> {
    /// The pages of a scan that begins with the first call of [`Pages::next`], each of `size` documents at most.
    pub fn new(
        store: &'a dyn Store,
        collection: impl Into<String>,
        filter: Filter,
        size: usize,
    ) -> Self {
        Self { store, collection: collection.into(), filter, size, at: At::Beginning }
    }

    /// Whether the next page is the first.
    #[must_use]
    pub fn is_at_beginning(&self) -> bool {
        matches!(self.at, At::Beginning)
    }

    /// The documents of the next page, with their versions at the time of the scan; `None` behind the last.
    ///
    /// # Errors
    /// As [`Store::scan`]. Where the first page did not come, the next call asks for it again. A page of a single document
    /// that is lost ends the scan, and every further call says so.
    ///
    /// # Cancel safety
    /// Dropped, it has lost a page: the scan begins anew.
    pub async fn next(&mut self) -> Result<Option<Vec<(Key, Version, Source)>>, StoreError> {
        loop {
            let from = match &self.at {
                At::Beginning => None,
                At::Cursor(cursor) => Some(cursor.clone()),
                At::End => return Ok(None),
                At::Lost(error) => return Err(error.clone()),
            };
            self.at = At::Beginning;
            let goes_on = from.is_some();
            match self.store.scan(&self.collection, &self.filter, self.size, from).await {
                Ok(page) => {
                    self.at = page.next.map_or(At::End, At::Cursor);
                    return Ok(Some(page.documents));
                }
                Err(error) if goes_on && error.kind == StoreErrorKind::Unavailable => {
                    self.size /= 2;
                    if self.size == 0 {
                        self.at = At::Lost(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}
