//! The cost of transactions: round trips and document writes, counted.
//!
//! ```sh
//! cargo run -p txn-examples --example cost
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use txn_core::event::{Event, Observer};
use txn_core::store::MemoryStore;
use txn_core::{
    Config, Domain, Error, LockMode, Options, Raw, ReadMode, Transaction, TransactionFn, WaitFor,
};
use txn_sim::{CountingStore, Counts};

/// Records the requests up to the acknowledgement of a commit. The apply continues after it.
#[derive(Debug)]
struct AtCommit {
    store: Arc<CountingStore>,
    counts: Mutex<Option<Counts>>,
}

impl Observer for AtCommit {
    fn on_event(&self, event: &Event) {
        if let Event::Committed { .. } = event {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts = Some(self.store.counts());
        }
    }
}

impl AtCommit {
    fn take(&self) -> Option<Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

struct Bench {
    store: Arc<CountingStore>,
    at_commit: Arc<AtCommit>,
    domain: Domain,
}

impl Bench {
    /// Runs one transaction, and counts its requests.
    ///
    /// The counts are those up to the acknowledgement, and after it.
    async fn cost<F>(&self, what: &str, options: &Options, closure: F) -> Result<Cost, Error>
    where
        F: for<'t> TransactionFn<'t, (), Error>,
    {
        let begin = self.store.counts();
        let options = options.clone().with_wait_for(WaitFor::Apply);
        let done = self.domain.run(&options, closure).await?;
        let all = self.store.counts();
        let acknowledged = self.at_commit.take().unwrap_or(all);
        let cost = Cost { before: acknowledged.since(begin), all: all.since(begin) };
        println!(
            "{what:42} {:>11} {:>10} {:>10} {:>9}",
            cost.before.requests(),
            cost.all.requests() - cost.before.requests(),
            cost.all.documents_written,
            cost.all.checks + cost.all.verifies,
        );
        assert_eq!(done.receipt.attempts, 1, "no conflict");
        Ok(cost)
    }
}

struct Cost {
    before: Counts,
    all: Counts,
}

impl Cost {
    fn is(&self, round_trips: u64, writes: u64) {
        assert_eq!((self.before.requests(), self.all.documents_written), (round_trips, writes));
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = Arc::new(CountingStore::new(Arc::new(MemoryStore::new())));
    let at_commit = Arc::new(AtCommit { store: store.clone(), counts: Mutex::default() });
    let config =
        Config::default().with_janitor_interval(None).with_observer(Some(at_commit.clone()));
    // A long transaction costs more: its heartbeat writes, and it reads again before it writes.
    let config = config.with_lease(std::time::Duration::from_secs(5));
    let domain = Domain::open_or_create(store.clone(), "cost", config).await?;
    let documents = domain.create_collection::<Raw>("documents", None).await?;
    let bench = Bench { store, at_commit, domain };
    let image = Raw::new(r#"{"n":1}"#);
    let ids = |n: usize| (0..n).map(|i| format!("d{i}"));
    let update = async |tx: &Transaction, n: usize| {
        tx.get_many(&documents, ids(n)).await?;
        ids(n).try_for_each(|id| tx.put(&documents, id, &image))
    };
    let (plain, locking) = (Options::default(), Options::default().with_read_mode(ReadMode::Lock));
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let read_only = Options::default().with_read_only(true);

    println!(
        "{:42} {:>11} {:>10} {:>10} {:>9}",
        "transaction", "round trips", "afterwards", "writes", "checks"
    );
    let inserts =
        async |tx: &Transaction| ids(10).try_for_each(|id| tx.insert(&documents, id, &image));
    bench.cost("insert 10", &plain, inserts).await?.is(2, 22);
    bench.cost("read and write 1", &plain, async |tx| update(tx, 1).await).await?.is(2, 1);
    bench.cost("read and write 2", &plain, async |tx| update(tx, 2).await).await?.is(3, 6);
    bench.cost("read and write 10", &plain, async |tx| update(tx, 10).await).await?.is(3, 22);
    bench.cost("the same, pessimistic", &pessimistic, async |tx| update(tx, 10).await).await?;
    let reads_more = async |tx: &Transaction| {
        tx.get_many(&documents, ids(10)).await?;
        ids(2).try_for_each(|id| tx.put(&documents, id, &image))
    };
    bench.cost("read 10, write 2 of them", &plain, reads_more).await?.is(4, 6);
    bench.cost("the same, with ReadMode::Lock", &locking, reads_more).await?.is(3, 22);
    let reads = async |tx: &Transaction| tx.get_many(&documents, ids(10)).await.map(|_| ());
    bench.cost("read 10, read-only", &read_only, reads).await?.is(2, 0);
    let delete = async |tx: &Transaction| tx.delete(&documents, "d0");
    bench.cost("delete 1", &plain, delete).await?.is(3, 4);

    bench.domain.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[test]
fn runs() -> Result<(), Error> {
    main()
}
