//! The server as a store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use txn_store::embedded::{self, LIMITS};
use txn_store::{
    CollectionIdentity, CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page,
    Read, Store, StoreError, StoreErrorKind, Write,
};

use super::slow::{Call, timed_out};
use super::{Collection, Reach, Server};

impl Collection {
    fn uid(&self) -> Arc<str> {
        format!("simulated-{}", self.incarnation).into()
    }
}

#[async_trait]
impl Store for Server {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn request_timeout(&self) -> Duration {
        self.state.lock().request_timeout
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, false).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, true).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        self.write(writes).await
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        let way = self.way_through(collection, Call::Write);
        let refresh = || {
            let mut state = self.state.lock();
            let found = state.existing(collection)?;
            found.refreshed = found.last;
            Ok(())
        };
        self.slowly(way, refresh).await.unwrap_or_else(|| Err(timed_out()))
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let way = self.way_through(collection, Call::Read);
        let page = || self.page(collection, filter, size, from);
        self.slowly(way, page).await.unwrap_or_else(|| Err(timed_out()))
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        let mut state = self.state.lock();
        if state.resolve(&spec.name).is_none() && spec.create {
            state.writes += 1;
            let incarnation = state.writes;
            let documents = BTreeMap::new();
            let (owner, blocked, reach) = (None, false, Reach::Open);
            let (term, last, refreshed) = (1, 0, 0);
            let new =
                Collection { incarnation, owner, blocked, reach, term, last, refreshed, documents };
            state.collections.insert(spec.name.as_str().into(), new);
        }
        let name = state.resolve(&spec.name);
        let collection = state.existing(&spec.name)?;
        if let Some(owner) = spec.role.owner() {
            collection.owner = Some(owner.to_owned());
        }
        let (uid, owner) = (collection.uid(), collection.owner.clone());
        Ok(CollectionInfo { name: name.unwrap_or_default(), uid, owner })
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        let mut state = self.state.lock();
        let physical = state.resolve(name).ok_or_else(|| embedded::not_found(name))?;
        let found = state.existing(&physical)?;
        let (uid, incarnation) = (found.uid(), found.incarnation);
        Ok(CollectionIdentity { name: physical, uid, incarnation })
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
            // A block is acknowledged only after every earlier write has ended.
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
        let epoch = self.state.lock().epoch;
        Ok(epoch.map(|epoch| epoch + self.origin.elapsed()))
    }
}
