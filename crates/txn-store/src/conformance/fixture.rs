//! Base of all parts: own collections, short calls, and panicking rules.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Options;
use crate::{
    CollectionInfo, CollectionSpec, Cursor, Filter, Key, Outcome, Page, Read, RefusalKind, Role,
    Source, Store, StoreError, StoreErrorKind, Version, Write, WriteOp,
};

/// The repetitions of a read that may be stale, and their pause.
const STALE: (u32, Duration) = (400, Duration::from_millis(25));

/// Panics with the rule and the observation, unless the rule holds.
#[track_caller]
pub(super) fn rule(rule: &str, holds: bool, seen: &(impl fmt::Debug + ?Sized)) {
    if holds {
        return;
    }
    let mut seen = format!("{seen:?}");
    if seen.len() > 800 {
        let end = (0..=800).rev().find(|at| seen.is_char_boundary(*at)).unwrap_or_default();
        seen.truncate(end);
        seen.push_str("...");
    }
    panic!("conformance: broken rule: {rule}; seen: {seen}");
}

/// Returns the source without the white space between tokens.
pub(super) fn compact(source: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |c: &char| {
        let kept = in_string || !c.is_ascii_whitespace();
        match *c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
        kept
    };
    source.chars().filter(keep).collect()
}

/// Whether the read shows this version and this source. White space is ignored.
pub(super) fn shows(read: &Read, version: Version, source: &str) -> bool {
    matches!(read, Read::Found { version: v, source: s }
        if *v == version && compact(s) == compact(source))
}

/// Whether a write was refused for good, with this kind of refusal.
pub(super) fn invalid(outcome: &Outcome, kind: RefusalKind) -> bool {
    matches!(outcome, Outcome::Invalid(refusal) if refusal.kind == kind)
}

/// The store under test, and the collections that a part has created.
pub(super) struct Fixture<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) options: &'a Options,
    part: &'static str,
    made: Vec<String>,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(store: &'a Arc<dyn Store>, options: &'a Options, part: &'static str) -> Self {
        Self { store, options, part, made: Vec::new() }
    }

    /// Returns the full name of a collection or alias of this part.
    pub(super) fn name(&self, of: &str) -> String {
        format!("{}-{}-{of}", self.options.prefix, self.part)
    }

    /// Returns the spec of a data collection without an owner.
    pub(super) fn spec(&self, of: &str, create: bool) -> CollectionSpec {
        let role = Role::Data { owner: None };
        CollectionSpec { name: self.name(of), role, create, mappings: None }
    }

    /// Creates an empty data collection.
    pub(super) async fn data(&mut self, of: &str) -> CollectionInfo {
        let spec = self.spec(of, true);
        self.make(spec).await
    }

    /// Creates an empty collection.
    pub(super) async fn make(&mut self, spec: CollectionSpec) -> CollectionInfo {
        self.discard(&spec.name).await;
        let info = self.store.open_collection(&spec).await;
        rule("open_collection with create makes a missing collection", info.is_ok(), &info);
        self.made.push(spec.name);
        info.expect("checked above")
    }

    /// Drops a collection, whether or not it exists.
    pub(super) async fn discard(&self, name: &str) {
        let dropped = self.store.drop_collection(name).await;
        let what = "drop_collection succeeds, for a missing collection as well";
        rule(what, dropped.is_ok(), &dropped);
    }

    /// Drops all collections of the part.
    pub(super) async fn clear(&mut self) {
        for name in std::mem::take(&mut self.made) {
            self.discard(&name).await;
        }
    }

    /// Writes a batch and returns one outcome per write.
    pub(super) async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let outcomes = self.store.write_many(writes).await;
        let one_each = outcomes.len() == writes.len();
        rule("write_many gives one outcome per write", one_each, &outcomes);
        outcomes
    }

    pub(super) async fn write(&self, key: &Key, op: WriteOp) -> Outcome {
        let mut outcomes = self.write_many(&[Write::new(key.clone(), op)]).await;
        outcomes.pop().expect("one outcome, checked")
    }

    /// Writes, and panics unless the write is applied.
    pub(super) async fn applied(&self, what: &str, key: &Key, op: WriteOp) -> Version {
        let outcome = self.write(key, op).await;
        let Outcome::Applied(version) = outcome else {
            rule(what, false, &outcome);
            unreachable!("the rule does not hold")
        };
        version
    }

    /// Creates an absent document.
    pub(super) async fn create(&self, key: &Key, source: &str) -> Version {
        let what = "create of an absent document is applied";
        self.applied(what, key, WriteOp::Create(source.into())).await
    }

    /// Writes, and panics unless the write has this outcome.
    pub(super) async fn gives(&self, what: &str, key: &Key, op: WriteOp, want: Outcome) {
        let outcome = self.write(key, op).await;
        rule(what, outcome == want, &outcome);
    }

    /// Reads from the primary.
    pub(super) async fn read(&self, key: &Key) -> Read {
        let mut reads = self.store.read_primary(std::slice::from_ref(key)).await;
        rule("read_primary gives one read per key", reads.len() == 1, &reads);
        reads.pop().expect("one read, checked")
    }

    /// Repeats a read until the answer is as wanted.
    ///
    /// The read may be stale.
    pub(super) async fn soon(&self, what: &str, keys: &[Key], want: impl Fn(&[Read]) -> bool) {
        let mut reads = Vec::new();
        for _ in 0..STALE.0 {
            reads = self.store.get_many(keys).await;
            rule("get_many gives one read per key", reads.len() == keys.len(), &reads);
            if want(&reads) {
                return;
            }
            tokio::time::sleep(STALE.1).await;
        }
        rule(what, false, &reads);
    }

    /// Checks version and source: now on the primary, soon in all reads.
    pub(super) async fn stands(&self, what: &str, key: &Key, version: Version, source: &str) {
        let read = self.read(key).await;
        rule(what, shows(&read, version, source), &read);
        let want = |reads: &[Read]| shows(&reads[0], version, source);
        self.soon(what, std::slice::from_ref(key), want).await;
    }

    /// Checks that a document is absent.
    ///
    /// The primary shows this now, and all reads soon.
    pub(super) async fn absent(&self, what: &str, key: &Key) {
        let read = self.read(key).await;
        rule(what, read == Read::Absent, &read);
        self.soon(what, std::slice::from_ref(key), |reads| reads[0] == Read::Absent).await;
    }

    /// Checks that no collection has this name, for reads, scans, and `open_collection`.
    pub(super) async fn no_collection(&self, what: &str, name: &str) {
        let key = Key::new(name, "1");
        let read = self.read(&key).await;
        rule(what, read == Read::MissingCollection, &read);
        let missing = |reads: &[Read]| reads[0] == Read::MissingCollection;
        self.soon(what, &[key], missing).await;
        let role = Role::Data { owner: None };
        let spec = CollectionSpec { name: name.to_owned(), role, create: false, mappings: None };
        not_found(what, self.store.open_collection(&spec).await);
        not_found(what, self.store.scan(name, &Filter::All, 10, None).await);
        not_found(what, self.store.refresh(name).await);
    }

    /// Makes the acknowledged writes visible, and scans to the end.
    pub(super) async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
    ) -> Vec<(Key, Version, Source)> {
        let refreshed = self.store.refresh(collection).await;
        rule("refresh of an existing collection succeeds", refreshed.is_ok(), &refreshed);
        let mut documents = Vec::new();
        let mut from: Option<Cursor> = None;
        // Pages may be empty. A scan with ten thousand pages has no end.
        for _ in 0..10_000 {
            let page = self.store.scan(collection, filter, size, from).await;
            rule("a scan of an existing collection succeeds", page.is_ok(), &page);
            let Page { documents: found, next } = page.expect("checked above");
            let what = "a page of a scan holds at most as many documents as asked for";
            rule(what, found.len() <= size, &(found.len(), size));
            documents.extend(found);
            if next.is_none() {
                return documents;
            }
            from = next;
        }
        rule("a scan comes to its end", false, &documents.len());
        documents
    }
}

/// Panics unless the call fails because the collection is missing.
#[track_caller]
pub(super) fn not_found<T: fmt::Debug>(what: &str, result: Result<T, StoreError>) {
    let is = matches!(&result, Err(error) if error.kind == StoreErrorKind::NotFound);
    rule(&format!("{what} (NotFound)"), is, &result);
}
