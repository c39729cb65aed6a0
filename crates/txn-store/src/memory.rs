//! The store in memory: the reference of the contract.
//!
//! The property tests run on this store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::embedded::{self, Decision, LIMITS, Place};
use crate::{
    CollectionIdentity, CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page,
    Read, Source, Store, StoreError, Version, Write,
};

/// A store in the memory of this process. Linearizable, and lost when the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last assigned version. Never reset, so that versions never return.
    clock: u64,
    collections: BTreeMap<Arc<str>, Collection>,
    aliases: BTreeMap<Arc<str>, Arc<str>>,
}

struct Collection {
    /// The value of the clock when the collection was created.
    incarnation: u64,
    owner: Option<String>,
    blocked: bool,
    documents: BTreeMap<Place, (Version, Source)>,
}

/// Shows only the number of documents, to keep documents out of logs.
impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, owner, blocked, documents } = self;
        f.debug_struct("Collection")
            .field("incarnation", incarnation)
            .field("owner", owner)
            .field("blocked", blocked)
            .field("documents", &documents.len())
            .finish()
    }
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Collection {
    fn uid(&self) -> Arc<str> {
        format!("memory-{}", self.incarnation).into()
    }
}

impl State {
    fn resolve(&self, name: &str) -> Option<&Arc<str>> {
        let alias = self.aliases.get(name);
        alias.or_else(|| self.collections.get_key_value(name).map(|(name, _)| name))
    }

    fn collection(&self, name: &str) -> Option<&Collection> {
        self.collections.get(self.resolve(name)?)
    }

    fn collection_mut(&mut self, name: &str) -> Option<&mut Collection> {
        let name = self.resolve(name)?.clone();
        self.collections.get_mut(&name)
    }

    fn existing(&mut self, name: &str) -> Result<&mut Collection, StoreError> {
        self.collection_mut(name).ok_or_else(|| embedded::not_found(name))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn read(&self, key: &Key) -> Read {
        let Some(collection) = self.collection(&key.collection) else {
            return Read::MissingCollection;
        };
        match collection.documents.get(&(key.id.clone(), key.routing.clone())) {
            Some((version, source)) => Read::Found { version: *version, source: source.clone() },
            None => Read::Absent,
        }
    }

    fn write(&mut self, write: &Write) -> Outcome {
        if let Some(refusal) = embedded::refuse(&LIMITS, write) {
            return Outcome::Invalid(refusal);
        }
        let Write { key, require_alias, op } = write;
        if *require_alias && !self.aliases.contains_key(&key.collection) {
            return Outcome::MissingCollection;
        }
        let Some(collection) = self.collection(&key.collection) else {
            return Outcome::MissingCollection;
        };
        if collection.blocked {
            return embedded::blocked(write);
        }
        let place = (key.id.clone(), key.routing.clone());
        let current = collection.documents.get(&place).map(|(version, _)| *version);
        let content = match embedded::decide(op, current) {
            Decision::Answer(outcome) => return outcome,
            Decision::Put(source) => Some(source.clone()),
            Decision::Remove => None,
        };
        let incarnation = collection.incarnation;
        let version = Version { incarnation, term: 1, seq_no: self.tick() };
        if let Some(collection) = self.collection_mut(&key.collection) {
            match content {
                Some(source) => collection.documents.insert(place, (version, source)),
                None => collection.documents.remove(&place),
            };
        }
        Outcome::Applied(version)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn request_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let state = self.state.lock();
        keys.iter().map(|key| state.read(key)).collect()
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.get_many(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut state = self.state.lock();
        writes.iter().map(|write| state.write(write)).collect()
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.state.lock().existing(collection).map(|_| ())
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let mut state = self.state.lock();
        let name = state.resolve(collection).cloned().unwrap_or_default();
        let documents = &state.existing(collection)?.documents;
        let documents =
            documents.iter().map(|(place, (version, source))| (place, *version, source));
        embedded::page(&name, documents, filter, size, from.as_ref())
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        let mut state = self.state.lock();
        if state.resolve(&spec.name).is_none() && spec.create {
            let (incarnation, documents) = (state.tick(), BTreeMap::new());
            let new = Collection { incarnation, owner: None, blocked: false, documents };
            state.collections.insert(spec.name.as_str().into(), new);
        }
        let name = state.resolve(&spec.name).cloned();
        let collection = state.existing(&spec.name)?;
        if let Some(owner) = spec.role.owner() {
            collection.owner = Some(owner.to_owned());
        }
        let (uid, owner) = (collection.uid(), collection.owner.clone());
        Ok(CollectionInfo { name: name.unwrap_or_default(), uid, owner })
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        let state = self.state.lock();
        let found = state.resolve(name).and_then(|name| state.collections.get_key_value(name));
        let (name, collection) = found.ok_or_else(|| embedded::not_found(name))?;
        let (uid, incarnation) = (collection.uid(), collection.incarnation);
        Ok(CollectionIdentity { name: name.clone(), uid, incarnation })
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.collections.remove(name);
        state.aliases.retain(|_, target| &**target != name);
        Ok(())
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.existing(collection)?;
        let target = state.resolve(collection).cloned().unwrap_or_else(|| collection.into());
        state.aliases.insert(alias.into(), target);
        Ok(())
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        self.state.lock().existing(collection)?.blocked = blocked;
        Ok(())
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        let state = self.state.lock();
        Ok(state.collections.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        self.state.lock().existing(collection)?.owner = None;
        Ok(())
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        Ok(None)
    }
}
