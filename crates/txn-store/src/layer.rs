//! The trait of stores that wrap another store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    CollectionIdentity, CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page,
    Read, Store, StoreError, Write,
};

/// A store that wraps another store and changes some of its calls.
///
/// The default of each method passes the call to the inner store. Every layer is a [`Store`].
///
/// ```
/// use async_trait::async_trait;
/// use txn_store::{Key, Layer, MemoryStore, Read, Store};
///
/// /// Prints each read.
/// #[derive(Debug)]
/// struct Loud(MemoryStore);
///
/// #[async_trait]
/// impl Layer for Loud {
///     fn inner(&self) -> &dyn Store {
///         &self.0
///     }
///
///     async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
///         println!("{keys:?}");
///         self.inner().get_many(keys).await
///     }
/// }
/// ```
#[async_trait]
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    /// Returns the wrapped store.
    fn inner(&self) -> &dyn Store;

    /// Wraps each call that returns a `Result`.
    ///
    /// These are the calls on collections and on the server. A layer overrides this method to act
    /// before, after or instead of these calls. Reads and writes of documents do not pass through
    /// this method.
    ///
    /// # Errors
    /// As the wrapped call.
    async fn around<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        call.await
    }

    /// See [`Store::limits`].
    fn limits(&self) -> Limits {
        self.inner().limits()
    }

    /// See [`Store::request_timeout`].
    fn request_timeout(&self) -> Duration {
        self.inner().request_timeout()
    }

    /// See [`Store::get_many`].
    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.inner().get_many(keys).await
    }

    /// See [`Store::read_primary`].
    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.inner().read_primary(keys).await
    }

    /// See [`Store::write_many`].
    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        self.inner().write_many(writes).await
    }

    /// See [`Store::refresh`].
    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.around(self.inner().refresh(collection)).await
    }

    /// See [`Store::scan`].
    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        self.around(self.inner().scan(collection, filter, size, from)).await
    }

    /// See [`Store::open_collection`].
    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        self.around(self.inner().open_collection(spec)).await
    }

    /// See [`Store::identify`].
    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        self.around(self.inner().identify(name)).await
    }

    /// See [`Store::drop_collection`].
    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        self.around(self.inner().drop_collection(name)).await
    }

    /// See [`Store::add_alias`].
    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        self.around(self.inner().add_alias(alias, collection)).await
    }

    /// See [`Store::block_writes`].
    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        self.around(self.inner().block_writes(collection, blocked)).await
    }

    /// See [`Store::list_collections`].
    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        self.around(self.inner().list_collections(prefix)).await
    }

    /// See [`Store::release_collection`].
    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        self.around(self.inner().release_collection(collection)).await
    }

    /// See [`Store::server_time`].
    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        self.around(self.inner().server_time()).await
    }
}

#[async_trait]
impl<L: Layer> Store for L {
    fn limits(&self) -> Limits {
        Layer::limits(self)
    }

    fn request_timeout(&self) -> Duration {
        Layer::request_timeout(self)
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        Layer::get_many(self, keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        Layer::read_primary(self, keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        Layer::write_many(self, writes).await
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        Layer::refresh(self, collection).await
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        Layer::scan(self, collection, filter, size, from).await
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        Layer::open_collection(self, spec).await
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        Layer::identify(self, name).await
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        Layer::drop_collection(self, name).await
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        Layer::add_alias(self, alias, collection).await
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        Layer::block_writes(self, collection, blocked).await
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        Layer::list_collections(self, prefix).await
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        Layer::release_collection(self, collection).await
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        Layer::server_time(self).await
    }
}
