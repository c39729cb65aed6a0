//! Reads of documents, from any copy and from the primary.

use std::sync::Arc;

use futures::future::{join, join_all};
use reqwest::Method;
use txn_store::{
    Key, Limits, Outcome, Read, RefusalKind, StoreError, StoreErrorKind, Write, WriteOp,
};

use crate::answers::classify::{self, Parts};
use crate::identity::target::Target;
use crate::requests::bulk::{Op, Settled};
use crate::requests::documents::{Inner, Miss, Resolved, item, too_large, without_alias};
use crate::requests::mget::{self, Ask};
use crate::transport::{Failure, Request, RequestClass, room_for};

impl Inner {
    pub(crate) async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let targets = self.resolve(keys.iter().map(|key| &*key.collection).collect()).await;
        let mut reads: Vec<Option<Read>> = vec![None; keys.len()];
        let mut asks = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            match plan_read(self.limits, key, &targets) {
                Ok(target) => asks.push(Ask { at, key, target }),
                Err(read) => reads[at] = Some(read),
            }
        }
        let found = self.multi_get(&asks, &[], mget::decode, Read::Unavailable).await;
        for (ask, read) in asks.iter().zip(found) {
            reads[ask.at] = Some(read);
        }
        let none = || mget::unavailable("not answered");
        reads.into_iter().map(|read| read.unwrap_or_else(none)).collect()
    }

    /// Reads documents of an index under a write block.
    ///
    /// The primary cannot be asked by a write. Every in-sync copy has all acknowledged writes, and
    /// the block admits no further one. But the read does not prove that the copy is in sync: a
    /// copy that is cut off may answer, too. On OpenSearch the read can choose the primary.
    async fn read_blocked(&self, asks: &[Ask<'_>]) -> Vec<Read> {
        let primary = [("preference", "_primary")];
        let query = if self.server.is_opensearch() { primary.as_slice() } else { &[] };
        self.multi_get(asks, query, mget::decode, Read::Unavailable).await
    }

    /// Replaces the outcomes of verifies that a block refused.
    pub(crate) async fn verify_blocked(
        &self,
        writes: &[Write],
        targets: &Resolved<'_>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let is_blocked = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Invalid(refusal)) if refusal.kind == RefusalKind::Blocked);
        let mut asks = Vec::new();
        for (at, write) in writes.iter().enumerate() {
            let (WriteOp::Verify(_), Some(Ok(target))) =
                (&write.op, targets.get(&*write.key.collection))
            else {
                continue;
            };
            if is_blocked(&outcomes[at]) {
                asks.push(Ask { at, key: &write.key, target: target.clone() });
            }
        }
        let reads = self.read_blocked(&asks).await;
        for (ask, read) in asks.iter().zip(reads) {
            let WriteOp::Verify(expected) = writes[ask.at].op else { continue };
            let stands = match read {
                Read::Found { version, .. } => Some(version),
                Read::Absent => None,
                Read::MissingCollection => {
                    outcomes[ask.at] = Some(Outcome::MissingCollection);
                    continue;
                }
                Read::Unavailable(error) => {
                    outcomes[ask.at] = Some(Outcome::Rejected(error.message));
                    continue;
                }
            };
            let holds = stands == expected;
            outcomes[ask.at] = Some(if holds { Outcome::Holds } else { Outcome::Conflict });
        }
    }

    /// Reads documents, split by the limits for number and size.
    ///
    /// `decode` returns a result per document of an answer, and `failed` the result of documents
    /// without an answer.
    async fn multi_get<T: Clone>(
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
                    room: room_for(asks.len(), self.max_bytes),
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
        let chunks = join_all(asks.chunks(self.max_items).map(chunk)).await;
        let shared: Vec<_> = asks.iter().map(|ask| &ask.target).filter(|t| t.is_shared()).collect();
        self.take_off_copies(shared.into_iter().cloned().collect()).await;
        chunks.into_iter().flatten().collect()
    }

    /// Returns whether documents exist under their keys, or an error read.
    async fn presence(&self, asks: &[Ask<'_>]) -> Vec<Result<bool, Read>> {
        // Without contents. `_source=false` would leave out the routing.
        let routing = [("stored_fields", "_routing")];
        let failed = |error| Err(Read::Unavailable(error));
        self.multi_get(asks, &routing, mget::decode_presence, failed).await
    }

    pub(crate) async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        let targets = self.resolve(keys.iter().map(|key| &*key.collection).collect()).await;
        let mut reads: Vec<Option<Read>> = vec![None; keys.len()];
        let mut items = Vec::with_capacity(keys.len());
        let mut asks = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            match plan_read(self.limits, key, &targets) {
                Ok(target) => match target.identity_alias.clone() {
                    Some(route) => {
                        if target.data {
                            asks.push(Ask { at, key, target: target.clone() });
                        }
                        items.push(item(at, key, route, target, Op::Read));
                    }
                    None => reads[at] = Some(Read::Unavailable(without_alias(&target))),
                },
                Err(read) => reads[at] = Some(read),
            }
        }
        // The answer of the primary lacks the routing, so a concurrent read from a copy shows it.
        let (settled, mut presence) = join(self.bulk(items), self.presence(&asks)).await;
        for (at, settled) in settled {
            if let Settled::Read(read) = settled {
                reads[at] = Some(read);
            }
        }
        let is_blocked = |ask: &&Ask<'_>| matches!(&reads[ask.at], Some(Read::Unavailable(e)) if e.kind == StoreErrorKind::Blocked);
        let blocked: Vec<_> = asks.iter().filter(is_blocked).cloned().collect();
        for (ask, read) in blocked.iter().zip(self.read_blocked(&blocked).await) {
            reads[ask.at] = Some(read);
        }
        let is_found = |ask: &Ask<'_>| matches!(reads[ask.at], Some(Read::Found { .. }));
        let unseen = |seen: &Result<bool, Read>| *seen == Ok(false);
        let late: Vec<usize> =
            (0..asks.len()).filter(|n| is_found(&asks[*n]) && unseen(&presence[*n])).collect();
        if !late.is_empty() {
            let again: Vec<_> = late.iter().map(|n| asks[*n].clone()).collect();
            for (n, seen) in late.into_iter().zip(self.presence(&again).await) {
                presence[n] = seen;
            }
        }
        for (ask, seen) in asks.iter().zip(presence) {
            if !matches!(reads[ask.at], Some(Read::Found { .. })) {
                continue;
            }
            match seen {
                Ok(true) => {}
                Ok(false) => {
                    reads[ask.at] =
                        Some(mget::unavailable("its copies do not agree yet; try again"));
                }
                Err(instead) => reads[ask.at] = Some(instead),
            }
        }
        let none = || mget::unavailable("not answered");
        reads.into_iter().map(|read| read.unwrap_or_else(none)).collect()
    }
}

fn plan_read(limits: Limits, key: &Key, targets: &Resolved<'_>) -> Result<Arc<Target>, Read> {
    match targets.get(&*key.collection) {
        // A document with such a key cannot exist.
        Some(Ok(_)) if limits.check(key, 0).is_err() => Err(Read::Absent),
        Some(Ok(target)) => Ok(target.clone()),
        Some(Err(Miss::Missing)) | None => Err(Read::MissingCollection),
        Some(Err(Miss::Failed(error))) => Err(Read::Unavailable(error.clone())),
    }
}
