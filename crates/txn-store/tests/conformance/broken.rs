//! The memory store with one rule broken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use txn_store::{
    CollectionIdentity, CollectionSpec, Cursor, Filter, Key, Layer, MemoryStore, Outcome, Page,
    Read, Refusal, RefusalKind, Role, Source, Store, StoreError, Version, Write, WriteOp,
};

/// The broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    ReplaceIgnoresVersion,
    DeleteIgnoresVersion,
    ReplaceMakesMissing,
    CreateReplaces,
    CheckWrites,
    CheckHoldsAlways,
    VerifyHoldsAlways,
    VersionsReturn,
    DroppedComesBack,
    OutcomesReversed,
    ReadsReversed,
    WritesReversed,
    ScanDropsLastPage,
    ScanRepeats,
    ScanIgnoresSize,
    ScanIgnoresFilter,
    ScanIgnoresNumber,
    ScanNeedsNumber,
    ScanIgnoresRange,
    AliasNotRequired,
    BlockIgnored,
    BadIdHarmsBatch,
    IdsTrimmed,
    RoutingForgotten,
    ValuesReformatted,
    LinesExecuted,
    WritesRetried,
    WritesLost,
    CheckThenWrite,
    ReadsHang,
    ListIsShort,
    OwnerStays,
    TimeInSeconds,
    IdentityRemembered,
    IncarnationOfAnother,
}

/// A correct store, except for its fault.
#[derive(Debug)]
pub(crate) struct Broken {
    fault: Fault,
    inner: MemoryStore,
    writes: AtomicU64,
    /// Versions per document, for the fault that versions start again.
    own: Mutex<BTreeMap<Key, Vec<Version>>>,
    /// The first answer per name, for the fault of a cached identity.
    identities: Mutex<BTreeMap<String, CollectionIdentity>>,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        let (inner, writes, own, identities) = Default::default();
        Self { fault, inner, writes, own, identities }
    }

    async fn now(&self, key: &Key) -> Option<Version> {
        match self.inner.read_primary(std::slice::from_ref(key)).await.pop() {
            Some(Read::Found { version, .. }) => Some(version),
            _ => None,
        }
    }

    async fn pass(&self, write: Write) -> Outcome {
        self.inner.write_many(&[write]).await.pop().expect("one outcome")
    }

    fn key(&self, key: &Key) -> Key {
        let mut key = key.clone();
        if self.fault == Fault::IdsTrimmed {
            let trimmed = key.id.trim();
            if !trimmed.is_empty() {
                key.id = trimmed.into();
            }
        }
        key
    }

    async fn one(&self, write: &Write) -> Outcome {
        let mut write = write.clone();
        write.key = self.key(&write.key);
        let now = self.now(&write.key).await;
        let count = self.writes.fetch_add(1, Ordering::Relaxed);
        match (self.fault, &mut write.op) {
            (Fault::ReplaceIgnoresVersion, WriteOp::Replace(_, version))
            | (Fault::DeleteIgnoresVersion, WriteOp::Delete(version)) => {
                *version = now.unwrap_or(*version);
            }
            (Fault::ReplaceMakesMissing, WriteOp::Replace(source, _)) if now.is_none() => {
                write.op = WriteOp::Create(source.clone());
            }
            (Fault::CreateReplaces, WriteOp::Create(source)) => {
                if let Some(now) = now {
                    write.op = WriteOp::Replace(source.clone(), now);
                }
            }
            (Fault::CheckWrites, WriteOp::Check(source)) => {
                write.op = WriteOp::Create(source.clone());
                return match self.pass(write).await {
                    Outcome::Applied(_) | Outcome::Conflict => Outcome::Holds,
                    other => other,
                };
            }
            (Fault::CheckHoldsAlways, WriteOp::Check(_))
            | (Fault::VerifyHoldsAlways, WriteOp::Verify(_)) => return Outcome::Holds,
            (Fault::AliasNotRequired, _) => write.require_alias = false,
            (Fault::ValuesReformatted, WriteOp::Create(source) | WriteOp::Replace(source, _)) => {
                *source = source.replace("1.10", "1.1").into();
            }
            (Fault::LinesExecuted, WriteOp::Create(source)) => {
                for line in source.split('\n').filter(|line| line.contains(r#""delete":"#)) {
                    let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else {
                        continue;
                    };
                    let id = line["delete"]["_id"].as_str().unwrap_or_default();
                    let key = Key::new(write.key.collection.clone(), id);
                    if let Some(now) = self.now(&key).await {
                        self.pass(Write::new(key, WriteOp::Delete(now))).await;
                    }
                }
            }
            (Fault::WritesRetried, _) => {
                self.pass(write.clone()).await;
            }
            (Fault::WritesLost, WriteOp::Replace(_, version))
                if now == Some(*version) && count.is_multiple_of(7) =>
            {
                return Outcome::Applied(Version::new(9, count));
            }
            (Fault::CheckThenWrite, WriteOp::Replace(_, version)) if now == Some(*version) => {
                // Checks the version, lets other writers run, and then overwrites the current
                // document.
                tokio::time::sleep(Duration::from_millis(1)).await;
                *version = self.now(&write.key).await.unwrap_or(*version);
            }
            (Fault::DroppedComesBack, WriteOp::Create(_)) => {
                let role = Role::Data { owner: None };
                let name = write.key.collection.to_string();
                let spec = CollectionSpec { name, role, create: true, mappings: None };
                self.inner.open_collection(&spec).await.expect("memory opens it");
            }
            _ => {}
        }
        self.pass(write).await
    }

    /// Assigns versions that start at one for each life of a document.
    async fn own_versions(&self, write: &Write) -> Outcome {
        let mut write = write.clone();
        let now = self.now(&write.key).await;
        let count = {
            let mut own = self.own.lock().expect("no task panics here");
            let life = own.entry(write.key.clone()).or_default();
            if life.last().copied() != now {
                life.clear();
                life.extend(now);
            }
            life.len() as u64
        };
        let stands = Version::new(1, count);
        match &mut write.op {
            WriteOp::Replace(_, version) | WriteOp::Delete(version) => {
                let Some(now) = now.filter(|_| *version == stands) else {
                    return Outcome::Conflict;
                };
                *version = now;
            }
            WriteOp::Verify(Some(version)) => {
                let Some(now) = now.filter(|_| *version == stands) else {
                    return Outcome::Conflict;
                };
                *version = now;
            }
            _ => {}
        }
        let deletes = matches!(write.op, WriteOp::Delete(_));
        let outcome = self.pass(write.clone()).await;
        let Outcome::Applied(version) = outcome else { return outcome };
        let mut own = self.own.lock().expect("no task panics here");
        let life = own.entry(write.key).or_default();
        life.push(version);
        let seq_no = life.len() as u64;
        if deletes {
            life.clear();
        }
        Outcome::Applied(Version::new(1, seq_no))
    }

    fn shown(&self, key: &Key, version: Version) -> Version {
        match self.own.lock().expect("no task panics here").get(key) {
            Some(life) => Version::new(1, life.len() as u64),
            None => version,
        }
    }
}

#[async_trait]
impl Layer for Broken {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let mapped: Vec<Key> = keys.iter().map(|key| self.key(key)).collect();
        let mut reads = self.inner.get_many(&mapped).await;
        for (key, read) in keys.iter().zip(&mut reads) {
            if let (Fault::VersionsReturn, Read::Found { version, .. }) = (self.fault, read) {
                *version = self.shown(key, *version);
            }
        }
        reads
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        if self.fault == Fault::ReadsHang {
            std::future::pending::<()>().await;
        }
        let mut reads = Layer::get_many(self, keys).await;
        if self.fault == Fault::ReadsReversed {
            reads.reverse();
        }
        reads
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let bad = |write: &Write| write.key.id.is_empty() || write.key.id.len() > 512;
        if self.fault == Fault::BadIdHarmsBatch && writes.iter().any(bad) && writes.len() > 1 {
            let refusal = Refusal { kind: RefusalKind::Id, reason: "the id is bad".to_owned() };
            return vec![Outcome::Invalid(refusal); writes.len()];
        }
        let mut outcomes = Vec::new();
        let mut writes: Vec<&Write> = writes.iter().collect();
        if self.fault == Fault::WritesReversed {
            writes.reverse();
        }
        for write in writes {
            outcomes.push(match self.fault {
                Fault::VersionsReturn => self.own_versions(write).await,
                _ => self.one(write).await,
            });
        }
        let swap = self.fault == Fault::OutcomesReversed && outcomes.len() > 8;
        if swap || self.fault == Fault::WritesReversed {
            outcomes.reverse();
        }
        outcomes
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let changed = match (self.fault, filter) {
            (Fault::ScanIgnoresFilter, _) => Some(Filter::All),
            (Fault::ScanIgnoresNumber, Filter::AnyOfUpTo { field, values, .. }) => {
                Some(Filter::AnyOf(field, values.clone()))
            }
            (Fault::ScanIgnoresRange, Filter::Range { field, .. }) => Some(Filter::Exists(field)),
            _ => None,
        };
        let needs_number =
            self.fault == Fault::ScanNeedsNumber && matches!(filter, Filter::AnyOfUpTo { .. });
        let filter = changed.as_ref().unwrap_or(filter);
        let size = if self.fault == Fault::ScanIgnoresSize { 1000 } else { size };
        let later = from.is_some();
        let mut page = self.inner.scan(collection, filter, size, from).await?;
        if needs_number {
            page.documents.retain(|(.., source)| source.contains("\"due_ms\":1"));
        }
        match self.fault {
            Fault::ScanDropsLastPage if later && page.next.is_none() => page.documents.clear(),
            Fault::ScanRepeats if page.documents.len() > 1 => {
                let first: (Key, Version, Source) = page.documents[0].clone();
                page.documents.pop();
                page.documents.push(first);
            }
            Fault::RoutingForgotten => {
                page.documents.iter_mut().for_each(|(key, ..)| key.routing = None);
            }
            _ => {}
        }
        Ok(page)
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        let remembered = self.identities.lock().expect("no task panics here").get(name).cloned();
        match remembered.filter(|_| self.fault == Fault::IdentityRemembered) {
            Some(identity) => Ok(identity),
            None => {
                let mut identity = self.inner.identify(name).await?;
                identity.incarnation ^= u64::from(self.fault == Fault::IncarnationOfAnother);
                let mut identities = self.identities.lock().expect("no task panics here");
                identities.insert(name.to_owned(), identity.clone());
                Ok(identity)
            }
        }
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        if self.fault == Fault::BlockIgnored {
            return self.inner.refresh(collection).await;
        }
        self.inner.block_writes(collection, blocked).await
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        let mut names = self.inner.list_collections(prefix).await?;
        if self.fault == Fault::ListIsShort {
            names.pop();
        }
        Ok(names)
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        if self.fault == Fault::OwnerStays {
            return self.inner.refresh(collection).await;
        }
        self.inner.release_collection(collection).await
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        match self.fault {
            Fault::TimeInSeconds => Ok(Some(Duration::from_millis(1_780_000_000))),
            _ => self.inner.server_time().await,
        }
    }
}
