//! The size of the file per transaction, and its reuse after records were dropped.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use serde::{Deserialize, Serialize};
use txn_core::{Collection, Config, Domain, Error, Options, Transaction, Typed, WaitFor};

use crate::{Place, TestClock};

/// The transactions between two measurements.
const TRANSACTIONS: usize = 1_000;
/// The transactions at the same time, each on two documents of its own.
const AT_ONCE: usize = 20;
/// The maximum number of bytes of a transaction in the file. Found: 1,085 to 1,515.
///
/// redb doubles the size of small files.
const EACH: u64 = 3_000;

#[derive(Serialize, Deserialize)]
struct Item {
    n: usize,
}

/// Writes two documents in each of many transactions, without groups.
async fn write_pairs(domain: &Domain, items: &Collection<Typed<Item>>) {
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let writes = stream::iter(0..TRANSACTIONS).map(|n| {
        let (options, pair) = (&options, n % AT_ONCE);
        async move {
            let write = domain.run(options, async |tx: &Transaction| {
                tx.put(items, format!("a{pair}"), &Item { n })?;
                tx.put(items, format!("b{pair}"), &Item { n })?;
                Ok::<_, Error>(())
            });
            write.await.expect("commits");
        }
    });
    writes.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn file_is_reused_after_days_were_dropped() {
    let (place, clock) = (Place::new(), Arc::new(TestClock::new(1)));
    let size = || std::fs::metadata(&place.path).expect("the file").len();
    let config = Config::default()
        .with_clock(clock.clone())
        .with_janitor_interval(None)
        .with_retention_days(1)
        .with_group_commit(Some(false));
    let store = Arc::new(place.open());
    let domain = Domain::open_or_create(store, "shop", config).await.expect("opens");
    let items = domain.create_collection("items", None).await.expect("opens");
    let empty = size();
    let mut sizes = Vec::new();
    for _ in 0..3 {
        write_pairs(&domain, &items).await;
        sizes.push(size());
        clock.advance(4);
        let report = domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{report:?}");
    }
    let each = (sizes[0] - empty) / TRANSACTIONS as u64;
    println!("{each} bytes for each transaction; file sizes {empty}, then {sizes:?}");
    assert!(each < EACH, "{each} bytes for each transaction");
    assert!(sizes[2] <= sizes[0] * 3 / 2, "the file grows: {sizes:?}");
    domain.shutdown(Duration::from_secs(60)).await;
}
