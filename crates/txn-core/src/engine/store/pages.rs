//! Scans by pages, with waits for an unavailable store.

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_store::{Filter, Key, Pages, Source, StoreErrorKind, Version};

/// The number of documents in one page of a scan.
pub(crate) const PAGE: usize = 500;

/// The documents of one page.
pub(crate) type Documents = Vec<(Key, Version, Source)>;

impl StoreAccess {
    /// Starts a scan of a collection, with `size` documents per page.
    pub(crate) fn pages(&self, collection: &str, filter: Filter, size: usize) -> Pages<'_> {
        Pages::new(&**self.documents(), collection, filter, size)
    }

    /// Returns the next page of a scan, or `None` after the last.
    ///
    /// Waits while the store is unavailable. A document may appear twice.
    pub(crate) async fn next_page(
        &self,
        pages: &mut Pages<'_>,
        deadline: &Deadline,
    ) -> Result<Option<Documents>, AttemptError> {
        let mut backoff = self.context.backoff();
        loop {
            match pages.next().await {
                Ok(documents) => return Ok(documents),
                Err(error)
                    if error.kind == StoreErrorKind::Unavailable && pages.is_at_beginning() =>
                {
                    self.context
                        .pause(deadline, &mut backoff, WaitReason::Store(error.message))
                        .await?;
                }
                Err(error) => return Err(Error::from(error).into()),
            }
        }
    }

    /// Whether a collection holds a document that matches the filter.
    pub(crate) async fn holds_any(
        &self,
        collection: &str,
        filter: Filter,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        self.refresh(collection, deadline).await?;
        let mut pages = self.pages(collection, filter, 1);
        while let Some(documents) = self.next_page(&mut pages, deadline).await? {
            if !documents.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
