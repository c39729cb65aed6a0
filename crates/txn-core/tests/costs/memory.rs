//! The memory of open transactions in their process.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allocation_counter::measure;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::runtime::Builder;
use txn_core::store::{Key, Layer, MemoryStore, Outcome, Read, Store, Write, WriteOp};
use txn_core::{Domain, Error, LockMode, Options};

use crate::support::{Item, Items, Plain, config};

/// The maximum number of bytes of an open transaction. Found: 11,100 to 11,600.
const EACH: i64 = 20_000;

/// Copies each document between the process and the store, as a request does.
#[derive(Debug)]
struct Copies(Arc<MemoryStore>);

fn copy(read: Read) -> Read {
    match read {
        Read::Found { version, source } => Read::Found { version, source: Arc::from(&*source) },
        other => other,
    }
}

fn copied(write: &Write) -> Write {
    let op = match &write.op {
        WriteOp::Create(source) => WriteOp::Create(Arc::from(&**source)),
        WriteOp::Replace(source, version) => WriteOp::Replace(Arc::from(&**source), *version),
        other => other.clone(),
    };
    Write { op, ..write.clone() }
}

#[async_trait]
impl Layer for Copies {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.0.get_many(keys).await.into_iter().map(copy).collect()
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.0.read_primary(keys).await.into_iter().map(copy).collect()
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        self.0.write_many(&writes.iter().map(copied).collect::<Vec<_>>()).await
    }
}

/// Locks and changes two documents, and never returns.
async fn hold(domain: Domain, items: Items, number: usize, holding: Arc<AtomicUsize>) {
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let held = domain.run::<(), Error, _>(&options, async |tx| {
        for id in ids(number) {
            let item = tx.get(&items, &id).await?.expect("exists");
            tx.put(&items, &id, &Item { n: item.n + 1 })?;
        }
        holding.fetch_add(1, Ordering::SeqCst);
        pending().await
    });
    held.await.expect("never ends");
}

fn ids(number: usize) -> [String; 2] {
    ["a", "b"].map(|side| format!("{side}{number}"))
}

/// The bytes of a process with this many open transactions, without the store.
///
/// The transactions have been open for a second, so that their heartbeats have records.
fn bytes_of(transactions: usize) -> i64 {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    let store = Arc::new(MemoryStore::new());
    let process = runtime.block_on(async {
        let config = config().with_max_concurrent_transactions(transactions);
        let copies = Arc::new(Copies(store.clone()));
        let domain = Domain::open_or_create(copies, "shop", config).await.expect("opens");
        let items: Items = domain.create_collection("items", None).await.expect("opens");
        for id in (0..transactions).flat_map(ids) {
            store.create(Key::new("items", id), "{\"n\":1}").await;
        }
        let holding = Arc::new(AtomicUsize::new(0));
        let hold = |number| Box::pin(hold(domain.clone(), items.clone(), number, holding.clone()));
        let mut open: FuturesUnordered<_> = (0..transactions).map(hold).collect();
        tokio::select! {
            _ = open.next() => unreachable!("no transaction ends"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        assert_eq!(holding.load(Ordering::SeqCst), transactions);
        (open, domain, items)
    });
    // The counter sees one thread only: this one, which runs all tasks.
    let freed = measure(move || {
        drop(process);
        drop(runtime);
    });
    -freed.bytes_current
}

#[test]
fn open_transaction_takes_bounded_bytes() {
    let [few, many] = [1_000, 10_000].map(bytes_of);
    let each = (many - few) / 9_000;
    println!("1,000 transactions: {few} bytes; 10,000: {many}; one more: {each}");
    assert!((1..=EACH).contains(&each), "{each} bytes");
    assert!(few <= 1_000 * EACH && many <= 10_000 * EACH, "{few} and {many} bytes");
}
