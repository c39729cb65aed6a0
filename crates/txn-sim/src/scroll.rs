//! Scans with a single server-side position, as servers give them.
//!
//! The position advances with each request, even if the answer is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_store::{Cursor, Filter, Layer, Page, Store, StoreError, StoreErrorKind};

/// A store with small pages, whose cursor always advances.
///
/// A page has at most two documents. The cursor advances with each request. Later pages are lost on
/// demand. One scan at a time.
#[derive(Debug)]
pub struct Scroll {
    inner: Arc<dyn Store>,
    at: Mutex<Option<Cursor>>,
    loses: AtomicUsize,
}

impl Scroll {
    /// Wraps a store, without losses.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, at: Mutex::default(), loses: AtomicUsize::new(0) }
    }

    /// Sets the number of pages that are lost from now on.
    pub fn lose(&self, pages: usize) {
        self.loses.store(pages, Ordering::SeqCst);
    }

    /// Returns the number of pages that will still be lost.
    #[must_use]
    pub fn left_to_lose(&self) -> usize {
        self.loses.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Layer for Scroll {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let goes_on = from.is_some();
        let at = if goes_on { self.at.lock().take() } else { None };
        let mut page = match (goes_on, &at) {
            (true, None) => Page::default(),
            _ => self.inner.scan(collection, filter, size.min(2), at).await?,
        };
        let next = page.next.take();
        page.next = next.is_some().then(|| Cursor("the scroll".to_owned()));
        *self.at.lock() = next;
        let one_less = |left: usize| left.checked_sub(1);
        let lost = goes_on
            && self.loses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
        match lost {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "no answer in time")),
            false => Ok(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_store::{CollectionSpec, Key, MemoryStore, Pages, Role, Write, WriteOp};

    async fn of_seven() -> Scroll {
        let store = MemoryStore::new();
        let role = Role::Data { owner: None };
        let spec = CollectionSpec { name: "c".to_owned(), role, create: true, mappings: None };
        store.open_collection(&spec).await.unwrap();
        let create = |i| Write::new(Key::new("c", format!("{i}")), WriteOp::Create("{}".into()));
        store.write_many(&(0..7).map(create).collect::<Vec<_>>()).await;
        Scroll::new(Arc::new(store))
    }

    #[tokio::test]
    async fn scan_restarts_after_a_lost_page() {
        let store = of_seven().await;
        for lost in [0, 1, 3] {
            store.lose(lost);
            let mut pages = Pages::new(&store, "c", Filter::All, 500);
            let mut found = std::collections::BTreeSet::new();
            while let Some(documents) = pages.next().await.unwrap() {
                found.extend(documents.into_iter().map(|(key, ..)| key));
            }
            assert_eq!((found.len(), store.left_to_lose()), (7, 0));
            assert_eq!(pages.next().await, Ok(None));
        }
    }

    #[tokio::test]
    async fn scan_fails_if_a_page_of_one_document_is_lost() {
        let store = of_seven().await;
        store.lose(usize::MAX);
        let mut pages = Pages::new(&store, "c", Filter::All, 500);
        let mut shown = 0;
        let error = loop {
            match pages.next().await {
                Ok(Some(_)) => shown += 1,
                Ok(None) => panic!("it passes for complete"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind, shown), (StoreErrorKind::Unavailable, 9));
        assert_eq!(pages.next().await, Err(error));
    }
}
