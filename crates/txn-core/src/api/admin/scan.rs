//! Bounded scans of a domain, for the operator's calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::report::{Fault, TransactionState};
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::store::pages::PAGE;
use crate::engine::store::store_access::Look;
use crate::error::{Error, Result};
use txn_protocol::document::View;
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::machines::domain::DomainDocument;
use txn_store::{Filter, Key, Source, Version};

/// The greatest limit of a list.
const MOST: usize = 10_000;

/// Keeps the entries of a scan with the smallest keys. Notes whether further entries were dropped.
///
/// A scan may show an entry twice.
pub(super) struct Smallest<K, V> {
    entries: BTreeMap<K, V>,
    limit: usize,
    truncated: bool,
}

impl<K: Ord, V> Smallest<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: BTreeMap::new(), limit: limit.clamp(1, MOST), truncated: false }
    }

    pub(super) fn add(&mut self, key: K, value: V) {
        self.entries.insert(key, value);
        if self.entries.len() > self.limit {
            self.entries.pop_last();
            self.truncated = true;
        }
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    pub(super) fn into_entries(self) -> BTreeMap<K, V> {
        self.entries
    }
}

/// The parts that could not be read, up to a limit.
pub(super) struct FaultList {
    faults: Vec<Fault>,
    limit: usize,
}

impl FaultList {
    pub(super) fn new(limit: usize) -> Self {
        Self { faults: Vec::new(), limit: limit.clamp(1, MOST) }
    }

    pub(super) fn note(&mut self, subject: impl ToString, error: &Error) {
        self.add(Fault::of(subject, error));
    }

    pub(super) fn add(&mut self, fault: Fault) {
        if self.faults.len() < self.limit {
            self.faults.push(fault);
        }
    }

    pub(super) fn into_vec(self) -> Vec<Fault> {
        let mut faults = self.faults;
        faults.sort();
        faults.dedup();
        faults
    }
}

impl Fault {
    /// The fault of a part that cannot be read.
    pub(in crate::api) fn of(subject: impl ToString, error: &Error) -> Self {
        let damaged = error.kind().needs_operator();
        let subject = error.document().map_or_else(|| subject.to_string(), ToString::to_string);
        Self { subject, message: error.to_string(), damaged }
    }
}

/// Reads the domain document.
pub(super) async fn domain_document(engine: &Engine) -> Result<DomainDocument> {
    let deadline = engine.context.deadline(engine.context.config.timeout);
    let (document, ..) =
        engine.table.domain_document(&deadline).await.map_err(AttemptError::into_error)?;
    Ok(document)
}

/// Visits the matching documents of a collection or a partition.
///
/// Documents are refreshed first, so that the scan finds every acknowledged write.
pub(super) async fn scan(
    engine: &Engine,
    name: &str,
    filter: Filter,
    mut visit: impl FnMut(Key, Version, Source),
) -> Result<()> {
    // An unreadable part must not use up the time of the rest.
    let deadline = engine.context.deadline(2 * engine.context.config.lease);
    engine.store.refresh(name, &deadline).await.map_err(AttemptError::into_error)?;
    let mut pages = engine.store.pages(name, filter, PAGE);
    loop {
        let page = engine.store.next_page(&mut pages, &deadline).await;
        let Some(documents) = page.map_err(AttemptError::into_error)? else { return Ok(()) };
        for (key, version, source) in documents {
            visit(key, version, source);
        }
    }
}

/// Returns the milliseconds from `then` until now. Zero for a moment in the future.
pub(super) fn since(engine: &Engine, then_ms: u64) -> u64 {
    engine.time.unix_millis().saturating_sub(then_ms)
}

/// The start of a transaction, in milliseconds since the Unix epoch.
pub(super) fn started_ms(tid: AttemptId) -> u64 {
    u64::try_from(tid.unix_time().as_millis()).unwrap_or(u64::MAX)
}

/// The lease of an attempt in milliseconds.
pub(super) fn lease_ms(engine: &Engine, tid: AttemptId) -> u64 {
    u64::try_from(engine.context.config.lease_of(tid.attempt()).as_millis()).unwrap_or(u64::MAX)
}

/// Whether an attempt without a record is overdue.
///
/// A tid has the start of its first attempt, so the age of a later attempt is not known.
pub(super) fn is_overdue_without_record(engine: &Engine, tid: AttemptId) -> bool {
    tid.attempt() == 0 && since(engine, started_ms(tid)) > lease_ms(engine, tid)
}

/// The state of a holder, with its record.
pub(super) type Holder = (TransactionState, Option<Arc<txn_protocol::record::Record>>);

/// The present document, or the reason why it could not be read.
pub(super) fn seen(key: &Key, look: Look) -> Result<View> {
    match look {
        Look::Seen(view) => Ok(view),
        Look::Missing => Err(Error::unavailable("the collection is missing").at(key)),
        Look::Later(why) => Err(Error::unavailable(why).at(key)),
        Look::Broken(error) => Err(error),
    }
}

/// The absent documents that later transactions deleted, by their records.
///
/// `absent`: the last known commit of each. `None` if the records could not be read.
pub(super) async fn deleted_since(
    engine: &Engine,
    absent: &BTreeMap<&Key, CommitVersion>,
    faults: &mut FaultList,
) -> Option<BTreeSet<Key>> {
    if absent.is_empty() {
        return Some(BTreeSet::new());
    }
    let deadline = engine.context.deadline(2 * engine.context.config.lease);
    let deleted = engine.applier.deleted_since(absent, &deadline).await;
    let note =
        |error: AttemptError| faults.note("the records of later deletions", &error.into_error());
    deleted.map_err(note).ok()
}
