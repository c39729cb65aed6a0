//! Going through all pages of a scan.

use std::ops::ControlFlow;

use super::Engine;
use super::attempt_error::AttemptError;
use super::deadline::{Deadline, WaitReason};
use crate::error::Error;
use crate::store::{Cursor, Filter, Key, Page, Source, StoreErrorKind, Version};

/// Documents that a scan asks for at once.
pub(crate) const PAGE: usize = 500;

/// What a page shows.
pub(crate) type Documents = Vec<(Key, Version, Source)>;

impl Engine {
    /// Shows every page of a scan to `visit`, until that breaks off. A page whose answer is lost cannot be asked for again, for
    /// the cursor may have moved on: the scan begins anew then, with smaller pages, and documents are shown again.
    pub(crate) async fn each_page<B>(
        &self,
        collection: &str,
        filter: &Filter,
        deadline: &Deadline,
        mut visit: impl FnMut(Documents) -> Result<ControlFlow<B>, AttemptError> + Send,
    ) -> Result<Option<B>, AttemptError> {
        let mut backoff = self.backoff();
        let mut size = PAGE;
        let mut from: Option<Cursor> = None;
        loop {
            let going_on = from.is_some();
            match self.store.scan(collection, filter, size, from.take()).await {
                Ok(Page { documents, next }) => {
                    if let ControlFlow::Break(found) = visit(documents)? {
                        return Ok(Some(found));
                    }
                    match next {
                        Some(next) => from = Some(next),
                        None => return Ok(None),
                    }
                }
                Err(error) if error.kind == StoreErrorKind::Unavailable => {
                    if going_on {
                        size = (size / 2).max(1);
                    }
                    self.pause(deadline, &mut backoff, WaitReason::Store(error.message)).await?;
                }
                Err(error) => return Err(Error::from(error).into()),
            }
        }
    }
}
