//! Sends multi-document reads, split by the limits.

use std::sync::Arc;

use futures::future::join_all;
use reqwest::Method;
use txn_store::{Read, StoreError};

use crate::answers::classify::{self, Parts};
use crate::identity::copies::Copies;
use crate::requests::limits::{RequestLimits, too_large};
use crate::requests::mget::{self, Ask};
use crate::transport::{Failure, Request, RequestClass, Transport};

/// Sends multi-document reads to one cluster. Any copy of an index may answer.
#[derive(Debug)]
pub(crate) struct MultiGets {
    transport: Arc<Transport>,
    copies: Copies,
    limits: RequestLimits,
    is_opensearch: bool,
}

impl MultiGets {
    pub(crate) fn new(
        transport: Arc<Transport>,
        copies: Copies,
        limits: RequestLimits,
        is_opensearch: bool,
    ) -> Self {
        Self { transport, copies, limits, is_opensearch }
    }

    /// Reads documents.
    pub(crate) async fn documents(&self, asks: &[Ask<'_>]) -> Vec<Read> {
        self.split(asks, &[], mget::decode, Read::Unavailable).await
    }

    /// Reads documents of an index under a write block.
    ///
    /// The primary cannot be asked by a write. Every in-sync copy has all acknowledged writes, and
    /// the block admits no further one. But the read does not prove that the copy is in sync: a
    /// copy that is cut off may answer, too. On OpenSearch the read can choose the primary.
    pub(crate) async fn blocked_documents(&self, asks: &[Ask<'_>]) -> Vec<Read> {
        let primary = [("preference", "_primary")];
        let query = if self.is_opensearch { primary.as_slice() } else { &[] };
        self.split(asks, query, mget::decode, Read::Unavailable).await
    }

    /// Returns whether documents exist under their keys, or an error read.
    pub(crate) async fn presence(&self, asks: &[Ask<'_>]) -> Vec<Result<bool, Read>> {
        // Without contents. `_source=false` would leave out the routing.
        let routing = [("stored_fields", "_routing")];
        let failed = |error| Err(Read::Unavailable(error));
        self.split(asks, &routing, mget::decode_presence, failed).await
    }

    /// Reads documents, split by the limits for number and size.
    ///
    /// `decode` returns a result per document of an answer, and `failed` the result of documents
    /// without an answer.
    async fn split<T: Clone>(
        &self,
        asks: &[Ask<'_>],
        query: &[(&str, &str)],
        decode: impl Fn(&[Ask<'_>], &[u8]) -> Vec<T>,
        failed: impl Fn(StoreError) -> T,
    ) -> Vec<T> {
        let (decode, failed) = (&decode, &failed);
        let chunk = |asks| async move {
            let mut answers = Vec::new();
            let mut parts = Parts::default();
            let mut stack: Vec<&[Ask<'_>]> = vec![asks];
            while let Some(asks) = stack.pop() {
                let request = Request {
                    method: Method::POST,
                    path: "/_mget",
                    query,
                    body: Some(mget::encode(asks)),
                    items: asks.len(),
                    room: self.limits.room(asks.len()),
                    class: RequestClass::Read,
                };
                let sent = self.transport.send(request).await;
                let divisible = match &sent {
                    Ok(answer) => classify::is_perhaps_about_one(answer) && parts.refuse(),
                    Err(failure) => matches!(failure, Failure::TooLarge(_)),
                };
                if divisible && asks.len() > 1 {
                    let (first, second) = asks.split_at(asks.len() / 2);
                    stack.extend([second, first]);
                    continue;
                }
                let error = match sent {
                    Ok(answer) if answer.status == 200 => {
                        parts.take();
                        answers.extend(decode(asks, &answer.body));
                        continue;
                    }
                    Ok(answer) => classify::error("reading documents", &answer),
                    Err(Failure::TooLarge(error)) => too_large(error),
                    Err(failure) => failure.into_error(),
                };
                answers.resize(answers.len() + asks.len(), failed(error));
            }
            answers
        };
        let chunks = join_all(asks.chunks(self.limits.items).map(chunk)).await;
        let shared: Vec<_> = asks.iter().map(|ask| &ask.target).filter(|t| t.is_shared()).collect();
        self.copies.take_off(shared.into_iter().cloned().collect()).await;
        chunks.into_iter().flatten().collect()
    }
}
