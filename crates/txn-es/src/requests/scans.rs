//! Scans, and the refresh that shows them the acknowledged writes.

use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use txn_store::{Cursor, Filter, Page, StoreError, StoreErrorKind};

use crate::answers::classify;
use crate::identity::target::Target;
use crate::index::indices::Indices;
use crate::index::names;
use crate::requests::limits::{RequestLimits, too_large};
use crate::requests::scan;
use crate::transport::{ADMIN_ROOM, Answer, Failure, Request, RequestClass, Transport};

/// Scans the collections of one cluster.
#[derive(Debug)]
pub(crate) struct Scans {
    transport: Arc<Transport>,
    indices: Arc<Indices>,
    limits: RequestLimits,
    is_opensearch: bool,
}

impl Scans {
    pub(crate) fn new(
        transport: Arc<Transport>,
        indices: Arc<Indices>,
        limits: RequestLimits,
        is_opensearch: bool,
    ) -> Self {
        Self { transport, indices, limits, is_opensearch }
    }

    pub(crate) async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let target = self.indices.existing(collection).await?;
        let mut size = size.clamp(1, scan::MAX_PAGE).min(target.most_per_page());
        let answer = self.ask_page(&target, filter, &mut size, from.as_ref()).await?;
        if answer.status != 200 {
            let mut error = classify::error(&format!("scanning {}", target.name), &answer);
            if from.is_some() && error.kind == StoreErrorKind::NotFound {
                // The scroll has expired; the collection still exists.
                error.kind = StoreErrorKind::Unavailable;
            }
            return Err(error);
        }
        let found = match scan::decode(&target, &answer.body) {
            Ok(found) => found,
            Err(error) => {
                self.end_scan(scan::scroll_of(&answer.body)).await;
                return Err(error);
            }
        };
        // A page that is not full is the last one.
        let next = match found.scroll_id {
            Some(scroll_id) if found.documents.len() >= size => {
                Some(scan::cursor(size, &scroll_id))
            }
            scroll_id => {
                self.end_scan(scroll_id).await;
                None
            }
        };
        Ok(Page { documents: found.documents, next })
    }

    /// Asks for the first or the next page of a scan.
    ///
    /// Sets `size` to the size of the page that was asked for.
    async fn ask_page(
        &self,
        target: &Target,
        filter: &Filter,
        size: &mut usize,
        from: Option<&Cursor>,
    ) -> Result<Answer, StoreError> {
        let first_path = format!("/{}/_search", names::segment(&target.name));
        let mut query = vec![("scroll", scan::KEEP_ALIVE)];
        if self.is_opensearch {
            // With segment replication, replicas lag behind a refresh.
            query.push(("preference", "_primary"));
        }
        loop {
            let (path, query, body) = match from {
                None => (first_path.as_str(), query.as_slice(), scan::first(filter, *size)),
                Some(cursor) => {
                    let (page, scroll_id) = scan::parts(cursor)?;
                    *size = page;
                    ("/_search/scroll", [].as_slice(), scan::next(scroll_id))
                }
            };
            let request = Request {
                method: Method::POST,
                path,
                query,
                body: Some(body.into()),
                items: *size,
                room: self.limits.room(*size),
                // Each request advances a scroll.
                class: match from {
                    None => RequestClass::Read,
                    Some(_) => RequestClass::Write,
                },
            };
            match self.transport.send(request).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::TooLarge(error)) if *size == 1 => return Err(too_large(error)),
                // The next scan has smaller pages. A scroll cannot change its page size.
                Err(Failure::TooLarge(error)) => {
                    *size /= 2;
                    target.shrink_pages(*size);
                    if from.is_some() {
                        return Err(error);
                    }
                }
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }

    /// Frees the servers' resources of a scan. A failure is harmless, because the scroll expires.
    async fn end_scan(&self, scroll_id: Option<String>) {
        let Some(scroll_id) = scroll_id else { return };
        let request = Request {
            method: Method::DELETE,
            path: "/_search/scroll",
            query: &[],
            body: Some(scan::clear(&scroll_id).into()),
            items: 0,
            room: ADMIN_ROOM,
            class: RequestClass::Read,
        };
        if let Err(failure) = self.transport.send(request).await {
            tracing::debug!(?failure, "a finished scan was not freed");
        }
    }

    pub(crate) async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        let target = self.indices.existing(collection).await?;
        let what = format!("refreshing {}", target.name);
        let path = format!("/{}/_refresh", names::segment(&target.name));
        let request = Request {
            method: Method::POST,
            path: &path,
            query: &[],
            body: None,
            items: 0,
            room: ADMIN_ROOM,
            class: RequestClass::Read,
        };
        let answer = self.transport.send(request).await.map_err(Failure::into_error)?;
        if answer.status != 200 {
            return Err(classify::error(&what, &answer));
        }
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if value["_shards"]["failed"] != 0 {
            let text = format!("{what}: not every shard answered; try again");
            return Err(StoreError::new(StoreErrorKind::Unavailable, text));
        }
        Ok(())
    }
}
