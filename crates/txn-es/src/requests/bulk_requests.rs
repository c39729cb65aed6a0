//! Splits bulk requests by the limits, and sends the parts.
//!
//! A refused part is halved to find the refused item.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use reqwest::Method;
use txn_store::{Read, Refusal, RefusalKind};

use crate::answers::classify::{self, Fate, Parts, Whole};
use crate::identity::copies::Copies;
use crate::requests::bulk::{self, Item, Op, Settled};
use crate::requests::limits::{RequestLimits, too_large};
use crate::transport::{Answer, Failure, Request, RequestClass, Transport, room_for};

/// Smaller requests, in bytes, are never carried out in parts.
///
/// So a refusal of the whole request means that nothing was carried out. Newer servers start large
/// requests before they have read them to the end.
pub(super) const WHOLE_BYTES: usize = 512 << 10;

/// Sends bulk requests to one cluster.
#[derive(Debug)]
pub(crate) struct BulkRequests {
    transport: Arc<Transport>,
    copies: Copies,
    limits: RequestLimits,
}

impl BulkRequests {
    pub(crate) fn new(transport: Arc<Transport>, copies: Copies, limits: RequestLimits) -> Self {
        Self { transport, copies, limits }
    }

    /// Sends operations, split by the limits for number and size.
    pub(crate) async fn send(&self, items: Vec<Item<'_>>) -> Vec<(usize, Settled)> {
        let mut chunks: Vec<&[Item<'_>]> = Vec::new();
        let mut rest = items.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(self.limits.items).take_while(|item| {
                bytes += item.len();
                bytes <= self.limits.bytes
            });
            let (chunk, tail) = rest.split_at(fits.count().max(1));
            chunks.push(chunk);
            rest = tail;
        }
        let settled: Vec<Settled> = if chunks.len() < 2 || are_independent(&items) {
            let sent = chunks.into_iter().map(|chunk| self.send_chunk(chunk));
            join_all(sent).await.into_iter().flatten().collect()
        } else {
            let mut all = Vec::with_capacity(items.len());
            for chunk in chunks {
                all.extend(self.send_chunk(chunk).await);
            }
            all
        };
        let shared: Vec<_> =
            items.iter().map(|item| &item.target).filter(|t| t.is_shared()).collect();
        self.copies.take_off(shared.into_iter().cloned().collect()).await;
        items.iter().map(|item| item.at).zip(settled).collect()
    }

    async fn send_chunk(&self, items: &[Item<'_>]) -> Vec<Settled> {
        let mut settled = Vec::with_capacity(items.len());
        let mut parts = Parts::default();
        // The flag: an earlier try may have been carried out.
        let mut stack = vec![(items, false)];
        while let Some((items, in_doubt)) = stack.pop() {
            let told = |all: Vec<Settled>| {
                let each = items.iter().zip(all);
                each.map(|(item, one)| if in_doubt { item.in_doubt(one) } else { one })
            };
            let body = bulk::encode(items);
            let len = body.len();
            let several = items.len() > 1;
            // Errors may repeat the sent text.
            let only_reads = items.iter().all(|item| item.op == Op::Read);
            let next = match self.send_once(items, body, only_reads).await {
                Ok(answer) if answer.status == 200 => {
                    parts.take();
                    settled.extend(told(bulk::decode(items, &answer.body)));
                    continue;
                }
                Ok(answer) => after_refusal(classify::whole(&answer), len, several, &mut parts),
                Err(Failure::TooLarge(_)) if only_reads && several => {
                    AfterRefusal::Halve { is_new_doubt: false }
                }
                Err(failure) if only_reads => {
                    let error = match failure {
                        Failure::TooLarge(error) => too_large(error),
                        failure => failure.into_error(),
                    };
                    let read = Settled::Read(Read::Unavailable(error));
                    settled.resize(settled.len() + items.len(), read);
                    continue;
                }
                Err(failure) => AfterRefusal::End(classify::fate_of_failure(failure)),
            };
            match next {
                AfterRefusal::Halve { is_new_doubt } => {
                    let (first, second) = items.split_at(items.len() / 2);
                    let in_doubt = in_doubt || is_new_doubt;
                    stack.extend([(second, in_doubt), (first, in_doubt)]);
                }
                AfterRefusal::End(fate) => {
                    let all = items.iter().map(|item| item.settle(fate.clone())).collect();
                    settled.extend(told(all));
                }
            }
        }
        settled
    }

    async fn send_once(
        &self,
        items: &[Item<'_>],
        body: Bytes,
        only_reads: bool,
    ) -> Result<Answer, Failure> {
        let documents = if only_reads { self.limits.bytes } else { 0 };
        let changes = items.iter().any(Item::changes);
        let timeout = self.transport.server_timeout(RequestClass::Write);
        let room = room_for(items.len(), documents).saturating_add(2 * body.len());
        let request = Request {
            method: Method::POST,
            path: "/_bulk",
            query: &[("pipeline", "_none"), ("timeout", &timeout)],
            body: Some(body),
            items: items.len(),
            room,
            class: if changes { RequestClass::Write } else { RequestClass::Read },
        };
        self.transport.send(request).await
    }
}

/// The step after a bulk request that failed as a whole.
enum AfterRefusal {
    /// Send both halves, to find the item that caused the refusal.
    Halve { is_new_doubt: bool },
    /// All items have the same end.
    End(Fate),
}

/// Returns the step after the server refused a whole request.
///
/// `len`: the bytes of the request. `several`: whether the request can be halved.
fn after_refusal(whole: Whole, len: usize, several: bool, parts: &mut Parts) -> AfterRefusal {
    AfterRefusal::End(match whole {
        Whole::TooLarge if several => return AfterRefusal::Halve { is_new_doubt: false },
        Whole::TooLarge => {
            let reason = format!(
                "the server, or a proxy before it, takes no request of {len} bytes: raise \
                 `http.max_content_length`, or the limit of the proxy"
            );
            Fate::Invalid(Refusal { kind: RefusalKind::TooLarge, reason })
        }
        // Nothing was carried out. Halve the request to find the invalid item.
        Whole::Malformed(Fate::Invalid(refusal)) if several => {
            match (len < WHOLE_BYTES, parts.refuse()) {
                (true, true) => return AfterRefusal::Halve { is_new_doubt: false },
                (true, false) => Fate::Rejected(refusal.reason),
                (false, _) => Fate::Unknown(refusal.reason),
            }
        }
        // Halve the request to find the refused item. The halves are in doubt, because the proxy
        // may have forwarded the first try before it refused.
        Whole::Barred(_) if several && parts.refuse() => {
            return AfterRefusal::Halve { is_new_doubt: true };
        }
        // The server may have started a large request before it refused.
        Whole::Same(Fate::Rejected(text)) if len >= WHOLE_BYTES => Fate::RejectedInDoubt(text),
        Whole::Malformed(fate) | Whole::Barred(fate) | Whole::Same(fate) => fate,
    })
}

/// Whether the operations may run in any order.
///
/// Two operations on one document keep their order, except dry runs, which ignore the stored
/// document.
pub(super) fn are_independent(items: &[Item<'_>]) -> bool {
    let mut seen = HashSet::new();
    let ordered = items.iter().filter(|item| !matches!(item.op, Op::Check(_)));
    ordered.map(|item| (&item.target.name, item.id, item.routing)).all(|name| seen.insert(name))
}
