//! The store in memory with the delay of a network, so that a worker can be ended between two requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use txn_core::store::{
    CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page, Read, Store,
    StoreError, Write,
};

/// How long a request takes on its way there, and on its way back.
const DELAY: Duration = Duration::from_millis(1);

/// A store whose reads and writes take a while.
#[derive(Debug)]
pub(crate) struct SlowStore(pub(crate) Arc<dyn Store>);

#[async_trait]
impl Store for SlowStore {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn request_timeout(&self) -> Duration {
        self.0.request_timeout()
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        tokio::time::sleep(DELAY).await;
        self.0.get_many(keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        tokio::time::sleep(DELAY).await;
        self.0.read_primary(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        tokio::time::sleep(DELAY).await;
        let outcomes = self.0.write_many(writes).await;
        tokio::time::sleep(DELAY).await;
        outcomes
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.0.refresh(collection).await
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        self.0.scan(collection, filter, size, from).await
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        self.0.open_collection(spec).await
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        self.0.drop_collection(name).await
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        self.0.add_alias(alias, collection).await
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        self.0.block_writes(collection, blocked).await
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        self.0.list_collections(prefix).await
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        self.0.release_collection(collection).await
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        self.0.server_time().await
    }
}
