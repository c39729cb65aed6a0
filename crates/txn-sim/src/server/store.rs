//! The server as a store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use txn_store::embedded::{self, LIMITS};
use txn_store::{
    CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page, Read, Role, Store,
    StoreError, StoreErrorKind, Write,
};

use super::{Collection, Reach, Server, out_of_reach};

#[async_trait]
impl Store for Server {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn request_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, false)
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, true)
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let Some(this) = self.this.upgrade() else { return Vec::new() };
        let writes = writes.to_vec();
        // Too short an answer, should the task fail.
        tokio::spawn(async move { this.bulk(&writes).await }).await.unwrap_or_default()
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
        let state = &mut *state;
        let name = state.resolve(collection).ok_or_else(|| embedded::not_found(collection))?;
        let Some(found) = state.collections.get(&name) else {
            return Err(embedded::not_found(collection));
        };
        out_of_reach(collection, found.reach)?;
        let documents = found.documents.iter().filter_map(|(place, document)| {
            let (version, source) = document.on_replica()?;
            Some((place, version, source))
        });
        let mut page = embedded::page(&name, documents, filter, size, from.as_ref())?;
        if !found.blocked {
            let before = page.documents.len();
            let (dice, odds) = (&mut state.dice, state.manners.scan_hides);
            page.documents.retain(|_| dice.f64() >= odds);
            state.misdeeds.hidden += (before - page.documents.len()) as u64;
        }
        Ok(page)
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        let mut state = self.state.lock();
        if state.resolve(&spec.name).is_none() && spec.create {
            state.writes += 1;
            let uid = format!("simulated-{}", state.writes).into();
            let documents = BTreeMap::new();
            let (owner, blocked, reach) = (None, false, Reach::Open);
            let new = Collection { uid, owner, blocked, reach, term: 1, last: 0, documents };
            state.collections.insert(spec.name.as_str().into(), new);
        }
        let name = state.resolve(&spec.name);
        let collection = state.existing(&spec.name)?;
        if let Role::Data { owner: Some(owner) } = &spec.role {
            collection.owner = Some(owner.clone());
        }
        let (uid, owner) = (collection.uid.clone(), collection.owner.clone());
        Ok(CollectionInfo { name: name.unwrap_or_default(), uid, owner })
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.collections.remove(name);
        state.aliases.retain(|_, (target, _)| &**target != name);
        Ok(())
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let target = state.resolve(collection).ok_or_else(|| embedded::not_found(collection))?;
        state.aliases.entry(alias.into()).or_insert((target, Instant::now()));
        Ok(())
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let found = state.existing(collection)?;
        if blocked && found.documents.values().any(|document| !document.dirty.is_empty()) {
            // A block is acknowledged once every write before it has ended.
            let message = "writes are still under way";
            return Err(StoreError::new(StoreErrorKind::Unavailable, message));
        }
        found.blocked = blocked;
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
