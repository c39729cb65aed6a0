//! A scan, page by page.

use crate::{Cursor, Filter, Key, Source, Store, StoreError, StoreErrorKind, Version};

/// The pages of a scan, in sequence.
///
/// A cursor works once, because it may have advanced even if its page was lost. After a lost page
/// the scan begins again with smaller pages, and returns some documents twice.
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
    /// Creates a scan with pages of at most `size` documents. The first [`Pages::next`] begins the
    /// scan.
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

    /// Returns the next page's documents with their versions.
    ///
    /// `None` after the last page.
    ///
    /// # Errors
    /// As [`Store::scan`]. If the first page fails, the next call asks for it again. A lost page of
    /// a single document ends the scan, and every further call returns the error.
    ///
    /// # Cancel safety
    /// A dropped future loses its page, and the scan begins again.
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
