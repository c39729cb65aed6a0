//! A store that counts calls of another store, for tests of cost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use txn_store::{
    Cursor, Filter, Key, Layer, Outcome, Page, Read, Store, StoreError, Write, WriteOp,
};

/// Passes every call to another store, and counts calls.
///
/// The store counts a call when it is made, with any result. A call without keys or writes is
/// passed on without a count.
#[derive(Debug)]
pub struct CountingStore {
    inner: Arc<dyn Store>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    get_many: AtomicU64,
    read_primary: AtomicU64,
    write_many: AtomicU64,
    scan: AtomicU64,
    admin: AtomicU64,
    documents_read: AtomicU64,
    documents_scanned: AtomicU64,
    documents_written: AtomicU64,
    checks: AtomicU64,
    verifies: AtomicU64,
}

/// The calls of a store: plain numbers since the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Read requests: calls of [`Store::get_many`].
    pub get_many: u64,
    /// Read requests to primaries: calls of [`Store::read_primary`].
    pub read_primary: u64,
    /// Write requests: calls of [`Store::write_many`].
    pub write_many: u64,
    /// Pages of scans: calls of [`Store::scan`].
    pub scan: u64,
    /// Refreshes, and administration of collections and aliases.
    pub admin: u64,
    /// Keys in all read requests, of both kinds.
    pub documents_read: u64,
    /// Documents in all pages of scans.
    pub documents_scanned: u64,
    /// Creates, replaces and deletes in all write requests.
    pub documents_written: u64,
    /// Checks in all write requests.
    pub checks: u64,
    /// Verifies in all write requests.
    pub verifies: u64,
}

impl Counts {
    /// Returns the number of requests of all kinds.
    ///
    /// If a caller waits for each request, the number is that of round trips.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.get_many + self.read_primary + self.write_many + self.scan + self.admin
    }

    /// Returns the difference to an earlier count of the same store.
    #[must_use]
    pub fn since(&self, earlier: Self) -> Self {
        let more = u64::saturating_sub;
        Self {
            get_many: more(self.get_many, earlier.get_many),
            read_primary: more(self.read_primary, earlier.read_primary),
            write_many: more(self.write_many, earlier.write_many),
            scan: more(self.scan, earlier.scan),
            admin: more(self.admin, earlier.admin),
            documents_read: more(self.documents_read, earlier.documents_read),
            documents_scanned: more(self.documents_scanned, earlier.documents_scanned),
            documents_written: more(self.documents_written, earlier.documents_written),
            checks: more(self.checks, earlier.checks),
            verifies: more(self.verifies, earlier.verifies),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { get_many, read_primary, write_many, scan, admin, .. } = self;
        let Self { documents_read, documents_scanned, documents_written, checks, .. } = self;
        write!(
            f,
            "{} requests ({get_many} get, {read_primary} primary, {write_many} write, \
             {scan} scan, {admin} admin): {documents_read} documents read, \
             {documents_scanned} scanned, {documents_written} written, {checks} checked, \
             {} verified",
            self.requests(),
            self.verifies
        )
    }
}

impl CountingStore {
    /// Counts the calls of `inner`, from zero.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, counters: Counters::default() }
    }

    /// Returns the counts so far. Concurrent calls may be counted in part.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        Counts {
            get_many: read(&c.get_many),
            read_primary: read(&c.read_primary),
            write_many: read(&c.write_many),
            scan: read(&c.scan),
            admin: read(&c.admin),
            documents_read: read(&c.documents_read),
            documents_scanned: read(&c.documents_scanned),
            documents_written: read(&c.documents_written),
            checks: read(&c.checks),
            verifies: read(&c.verifies),
        }
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

#[async_trait]
impl Layer for CountingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<V: Send>(
        &self,
        call: impl Future<Output = Result<V, StoreError>> + Send,
    ) -> Result<V, StoreError> {
        add(&self.counters.admin, 1);
        call.await
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        add(&self.counters.get_many, usize::from(!keys.is_empty()));
        add(&self.counters.documents_read, keys.len());
        self.inner.get_many(keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        add(&self.counters.read_primary, usize::from(!keys.is_empty()));
        add(&self.counters.documents_read, keys.len());
        self.inner.read_primary(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let count = |of: fn(&WriteOp) -> bool| writes.iter().filter(|w| of(&w.op)).count();
        add(&self.counters.write_many, usize::from(!writes.is_empty()));
        add(&self.counters.documents_written, count(WriteOp::changes));
        add(&self.counters.checks, count(|op| matches!(op, WriteOp::Check(_))));
        add(&self.counters.verifies, count(|op| matches!(op, WriteOp::Verify(_))));
        self.inner.write_many(writes).await
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        add(&self.counters.scan, 1);
        let page = self.inner.scan(collection, filter, size, from).await?;
        add(&self.counters.documents_scanned, page.documents.len());
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_store::{MemoryStore, Version};

    #[tokio::test]
    async fn requests_and_documents_are_counted() {
        let counting = CountingStore::new(Arc::new(MemoryStore::new()));
        let store: &dyn Store = &counting;
        assert_eq!(counting.counts(), Counts::default());
        let key = Key::new("c", "1");
        let at = Version::new(1, 1);
        let ops = [
            WriteOp::Create("{}".into()),
            WriteOp::Replace("{}".into(), at),
            WriteOp::Delete(at),
            WriteOp::Check("{}".into()),
            WriteOp::Verify(None),
            WriteOp::Verify(Some(at)),
        ];
        store.write_many(&ops.map(|op| Write::new(key.clone(), op))).await;
        store.get_many(&[key.clone(), key.clone()]).await;
        let before = counting.counts();
        store.read_primary(std::slice::from_ref(&key)).await;
        store.get_many(&[]).await;
        store.write_many(&[]).await;
        let _ = store.scan("c", &Filter::All, 1, None).await;
        let _ = store.refresh("c").await;
        let _ = store.drop_collection("c").await;

        let first = Counts { get_many: 1, write_many: 1, documents_read: 2, ..Counts::default() };
        assert_eq!(before, Counts { documents_written: 3, checks: 1, verifies: 2, ..first });
        let more = counting.counts().since(before);
        let expected = Counts { read_primary: 1, documents_read: 1, ..Counts::default() };
        assert_eq!(more, Counts { scan: 1, admin: 2, ..expected });
        assert_eq!(
            before.to_string(),
            "2 requests (1 get, 0 primary, 1 write, 0 scan, 0 admin): \
             2 documents read, 0 scanned, 3 written, 1 checked, 2 verified"
        );
    }
}
