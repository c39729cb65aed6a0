//! A memory store with collections that can be closed.
//!
//! The store also reports a server time, and records which collections were refreshed and scanned.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{
    CollectionInfo, CollectionSpec, Cursor, Filter, Key, Layer, MemoryStore, Outcome, Page, Read,
    Store, StoreError, StoreErrorKind, Write, WriteOp,
};
use txn_core::{AttemptId, Domain, Options};

#[derive(Debug, Default)]
pub(crate) struct TestStore {
    inner: MemoryStore,
    closed: Mutex<BTreeSet<String>>,
    close_at_commit: Mutex<Option<String>>,
    races: Mutex<Option<String>>,
    time: Mutex<Option<Duration>>,
    refreshed: Mutex<Vec<String>>,
    scanned: Mutex<Vec<String>>,
}

impl TestStore {
    /// Makes every request for the collection fail as unavailable.
    pub(crate) fn close(&self, collection: &str) {
        self.closed.lock().insert(collection.to_owned());
    }

    /// Closes the collection at the next commit.
    pub(crate) fn close_at_commit(&self, collection: &str) {
        *self.close_at_commit.lock() = Some(collection.to_owned());
    }

    /// Answers the next write with this id prefix with a conflict.
    ///
    /// The write is applied. A request that races with its own retry receives the same answer.
    pub(crate) fn race(&self, id: &str) {
        *self.races.lock() = Some(id.to_owned());
    }

    pub(crate) fn reopen(&self, collection: &str) {
        self.closed.lock().remove(collection);
    }

    /// Sets the server time.
    pub(crate) fn set_time(&self, time: Option<Duration>) {
        *self.time.lock() = time;
    }

    /// Returns the collections that were refreshed and scanned since the last call.
    pub(crate) fn looked_at(&self) -> (Vec<String>, Vec<String>) {
        (std::mem::take(&mut self.refreshed.lock()), std::mem::take(&mut self.scanned.lock()))
    }

    fn check(&self, collection: &str) -> Result<(), StoreError> {
        match self.closed.lock().contains(collection) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "closed by the test")),
            false => Ok(()),
        }
    }

    pub(crate) async fn read(&self, key: &Key) -> Read {
        self.inner.get_many(std::slice::from_ref(key)).await.swap_remove(0)
    }

    /// Leaves a lock on a document, as of a process of the domain that died before its commit.
    pub(crate) async fn leave_lock(&self, domain: &Domain, key: Key) -> AttemptId {
        let tid = domain.begin(&Options::default()).expect("begins").tid();
        let Read::Found { version, source } = self.read(&key).await else {
            panic!("no document");
        };
        let locked = format!("{{\"transaction_tid\":\"{tid}\",{}", &source[1..]);
        let replace = WriteOp::Replace(locked.into(), version);
        let outcomes = Store::write_many(self, &[Write::new(key, replace)]).await;
        assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
        tid
    }

    pub(crate) async fn text(&self, key: &Key) -> String {
        match self.read(key).await {
            Read::Found { source, .. } => source.to_string(),
            other => panic!("no document {key}: {other:?}"),
        }
    }
}

#[async_trait]
impl Layer for TestStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let mut reads = self.inner.get_many(keys).await;
        for (key, read) in keys.iter().zip(&mut reads) {
            if let Err(error) = self.check(&key.collection) {
                *read = Read::Unavailable(error);
            }
        }
        reads
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        Layer::get_many(self, keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for write in writes {
            if let WriteOp::Create(source) | WriteOp::Replace(source, _) = &write.op
                && source.contains("\"state\":\"committed\"")
            {
                self.closed.lock().extend(self.close_at_commit.lock().take());
            }
            outcomes.push(match self.check(&write.key.collection) {
                Ok(()) => self.inner.write_many(std::slice::from_ref(write)).await.swap_remove(0),
                Err(error) => Outcome::RejectedInDoubt(error.message),
            });
            let races = self.races.lock().take_if(|id| write.key.id.starts_with(&**id)).is_some();
            if let Some(outcome) = outcomes.last_mut().filter(|_| races) {
                *outcome = Outcome::Conflict;
            }
        }
        outcomes
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.refreshed.lock().push(collection.to_owned());
        self.check(collection)?;
        self.inner.refresh(collection).await
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        self.scanned.lock().push(collection.to_owned());
        self.check(collection)?;
        self.inner.scan(collection, filter, size, from).await
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        self.check(&spec.name)?;
        self.inner.open_collection(spec).await
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        self.check(collection)?;
        self.inner.block_writes(collection, blocked).await
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        self.check(collection)?;
        self.inner.release_collection(collection).await
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        Ok(*self.time.lock())
    }
}
