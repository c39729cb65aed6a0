//! Operations on documents: names to indices, operations to requests, answers to outcomes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use reqwest::Method;
use txn_store::{
    Cursor, Filter, Key, Limits, Outcome, Page, Read, Refusal, RefusalKind, StoreError,
    StoreErrorKind, Write, WriteOp,
};

use crate::answers::classify::{self, Fate, Parts, Whole};
use crate::identity::target::{Target, Targets, identity_alias, identity_aliases};
use crate::requests::bulk::{self, Item, Op, Settled};
use crate::transport::{ADMIN_ROOM, Answer, Failure, Request, RequestClass, Transport, room_for};
use crate::{index::names, requests::scan};

/// The state that all handles of one store share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) transport: Transport,
    pub(crate) server: crate::Server,
    pub(crate) limits: Limits,
    pub(crate) max_items: usize,
    pub(crate) max_bytes: usize,
    pub(crate) targets: Targets,
    /// Index settings that the server does not know.
    pub(crate) unknown_settings: Mutex<BTreeSet<String>>,
}

/// The reason why a name has no target.
#[derive(Clone, Debug)]
pub(crate) enum Miss {
    /// There is no such collection.
    Missing,
    /// The search failed, or the name is not that of a collection.
    Failed(StoreError),
}

pub(crate) type Resolved<'a> = BTreeMap<&'a str, Result<Arc<Target>, Miss>>;

/// Smaller requests, in bytes, are never carried out in parts.
///
/// So a refusal of the whole request means that nothing was carried out. Newer servers start large
/// requests before they have read them to the end.
const WHOLE_BYTES: usize = 512 << 10;

impl Inner {
    pub(crate) async fn resolve<'a>(&self, names: BTreeSet<&'a str>) -> Resolved<'a> {
        let lookups = names.into_iter().map(|name| async move { (name, self.target(name).await) });
        join_all(lookups).await.into_iter().collect()
    }

    pub(crate) async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let refused: Vec<_> = writes.iter().map(|write| self.refuse(write)).collect();
        let names = writes.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let names = names.map(|(write, _)| &*write.key.collection).collect();
        let mut targets = self.resolve(names).await;
        // A version of another incarnation is old, or the cached target is. An identity alias may
        // have been added in the meantime.
        let mut again = BTreeSet::new();
        for write in writes {
            let foreign = |target: &Target| {
                condition_of(&write.op).is_some_and(|version| target.condition(version).is_none())
            };
            if let Some(Ok(target)) = targets.get(&*write.key.collection)
                && (target.identity_alias.is_none() || foreign(target))
            {
                self.targets.forget(&target.name);
                again.insert(&*write.key.collection);
            }
        }
        targets.extend(self.resolve(again).await);

        let mut outcomes = refused;
        let mut items = Vec::with_capacity(writes.len());
        for (at, write) in writes.iter().enumerate() {
            if outcomes[at].is_some() {
                continue;
            }
            match plan_write(at, write, &targets) {
                Ok(item) => items.push(item),
                Err(outcome) => outcomes[at] = Some(outcome),
            }
        }
        for (at, settled) in self.bulk(items).await {
            if let Settled::Write(outcome) = settled {
                outcomes[at] = Some(outcome);
            }
        }
        self.verify_blocked(writes, &targets, &mut outcomes).await;
        for (write, outcome) in writes.iter().zip(&mut outcomes) {
            if let (WriteOp::Check(source), Some(Outcome::Holds)) = (&write.op, &outcome) {
                *outcome = Some(self.recheck(&write.key.collection, source).await);
            }
        }
        let none = || Outcome::Unknown("not answered".to_owned());
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(none)).collect()
    }

    /// Refuses an invalid write before it is sent.
    ///
    /// One invalid item would fail the whole request.
    fn refuse(&self, write: &Write) -> Option<Outcome> {
        if let Err(refusal) = self.limits.check(&write.key, write.op.source_len()) {
            return Some(Outcome::Invalid(refusal));
        }
        let source = match &write.op {
            WriteOp::Create(s) | WriteOp::Replace(s, _) | WriteOp::Check(s) => Some(s),
            WriteOp::Delete(_) | WriteOp::Verify(_) => None,
        };
        if let Some(reason) = source.and_then(|source| fault_of_source(source)) {
            return Some(Outcome::Invalid(Refusal { kind: RefusalKind::Document, reason }));
        }
        None
    }

    /// Sends operations, split by the limits for number and size.
    pub(crate) async fn bulk(&self, items: Vec<Item<'_>>) -> Vec<(usize, Settled)> {
        let mut chunks: Vec<&[Item<'_>]> = Vec::new();
        let mut rest = items.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(self.max_items).take_while(|item| {
                bytes += item.len();
                bytes <= self.max_bytes
            });
            let (chunk, tail) = rest.split_at(fits.count().max(1));
            chunks.push(chunk);
            rest = tail;
        }
        let settled: Vec<Settled> = if chunks.len() < 2 || are_independent(&items) {
            let sent = chunks.into_iter().map(|chunk| self.bulk_chunk(chunk));
            join_all(sent).await.into_iter().flatten().collect()
        } else {
            let mut all = Vec::with_capacity(items.len());
            for chunk in chunks {
                all.extend(self.bulk_chunk(chunk).await);
            }
            all
        };
        let shared: Vec<_> =
            items.iter().map(|item| &item.target).filter(|t| t.is_shared()).collect();
        self.take_off_copies(shared.into_iter().cloned().collect()).await;
        items.iter().map(|item| item.at).zip(settled).collect()
    }

    async fn bulk_chunk(&self, items: &[Item<'_>]) -> Vec<Settled> {
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
            let next = match self.send_bulk(items, body, only_reads).await {
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

    async fn send_bulk(
        &self,
        items: &[Item<'_>],
        body: Bytes,
        only_reads: bool,
    ) -> Result<Answer, Failure> {
        let documents = if only_reads { self.max_bytes } else { 0 };
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

    pub(crate) async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let target = self.existing(collection).await?;
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
        if self.server.is_opensearch() {
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
                room: room_for(*size, self.max_bytes),
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

    /// Returns the target of a name that has to exist.
    pub(crate) async fn existing(&self, name: &str) -> Result<Arc<Target>, StoreError> {
        self.target(name).await.map_err(|miss| match miss {
            Miss::Missing => no_index(name),
            Miss::Failed(error) => error,
        })
    }
}

/// The error for a missing collection.
pub(crate) fn no_index(name: &str) -> StoreError {
    let text = format!(
        "there is no index {name}: correct the name, or create the index (create_collection creates a missing index)"
    );
    StoreError::new(StoreErrorKind::NotFound, text)
}

/// Explains an answer about one document that is too large. A retry would not be smaller.
pub(crate) fn too_large(error: StoreError) -> StoreError {
    let advice = "if the documents are that large, raise EsConfig::with_max_bulk_bytes";
    StoreError::new(StoreErrorKind::Misconfigured, format!("{}; {advice}", error.message))
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

fn plan_write<'a>(
    at: usize,
    write: &'a Write,
    targets: &Resolved<'_>,
) -> Result<Item<'a>, Outcome> {
    let target = match targets.get(&*write.key.collection) {
        Some(Ok(target)) => target.clone(),
        Some(Err(Miss::Missing)) | None => return Err(Outcome::MissingCollection),
        Some(Err(Miss::Failed(error))) => return Err(not_sent(error.clone())),
    };
    // The servers ignore `require_alias` of deletes.
    if write.require_alias && write.key.collection == target.name {
        return Err(Outcome::MissingCollection);
    }
    let route = match (write.require_alias, &target.identity_alias) {
        (true, _) => write.key.collection.clone(),
        (false, Some(identity_alias)) => identity_alias.clone(),
        (false, None) => return Err(not_sent(without_alias(&target))),
    };
    let condition = |version| target.condition(version).ok_or(Outcome::Conflict);
    let op = match &write.op {
        WriteOp::Create(source) => Op::Create(source),
        WriteOp::Replace(source, version) => Op::Replace(source, condition(*version)?),
        WriteOp::Delete(version) => Op::Delete(condition(*version)?),
        WriteOp::Check(source) => Op::Check(source),
        WriteOp::Verify(Some(version)) => Op::Verify(Some(condition(*version)?)),
        WriteOp::Verify(None) => Op::Verify(None),
    };
    Ok(item(at, &write.key, route, target, op))
}

pub(crate) fn item<'a>(
    at: usize,
    key: &'a Key,
    route: Arc<str>,
    target: Arc<Target>,
    op: Op<'a>,
) -> Item<'a> {
    let routing = key.routing.as_deref();
    Item { at, route, require_alias: true, target, id: &key.id, routing, op }
}

fn condition_of(op: &WriteOp) -> Option<txn_store::Version> {
    match op {
        WriteOp::Replace(_, version) | WriteOp::Delete(version) => Some(*version),
        WriteOp::Verify(expected) => *expected,
        WriteOp::Create(_) | WriteOp::Check(_) => None,
    }
}

pub(crate) fn without_alias(target: &Target) -> StoreError {
    let (name, aliases) = (&target.name, identity_aliases(&target.name));
    let text = format!(
        "writing to {name} needs the alias {}, which is missing and may not be added: grant the index \
         privileges write and manage on {name} and {aliases}, or let an administrator open the collection once",
        identity_alias(name, &target.uuid),
    );
    StoreError::new(StoreErrorKind::Denied, text)
}

/// Returns the outcome of a write that was not sent.
fn not_sent(error: StoreError) -> Outcome {
    match error.kind {
        StoreErrorKind::Denied => {
            Outcome::Invalid(Refusal { kind: RefusalKind::Denied, reason: error.message })
        }
        _ => Outcome::Rejected(error.message),
    }
}

/// Returns the fault of a source that is no one-line JSON object.
///
/// Other text would not survive a bulk request.
fn fault_of_source(source: &str) -> Option<String> {
    if source.bytes().any(|byte| byte == b'\n' || byte == b'\r') {
        return Some("the source has a raw line break".to_owned());
    }
    if !source.trim_start().starts_with('{') {
        return Some("the source is not a JSON object".to_owned());
    }
    serde_json::from_str::<serde::de::IgnoredAny>(source).err().map(|e| e.to_string())
}

/// Whether the operations may run in any order.
///
/// Two operations on one document keep their order, except dry runs, which ignore the stored
/// document.
fn are_independent(items: &[Item<'_>]) -> bool {
    let mut seen = HashSet::new();
    let ordered = items.iter().filter(|item| !matches!(item.op, Op::Check(_)));
    ordered.map(|item| (&item.target.name, item.id, item.routing)).all(|name| seen.insert(name))
}

#[cfg(test)]
#[path = "documents_tests.rs"]
mod tests;
