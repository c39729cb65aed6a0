//! Collections that keep their past, and readers at a timestamp.

use std::sync::Arc;
use std::time::Duration;

use super::support::Wall;
use serde::{Deserialize, Serialize};
use txn_core::clock::Clock;
use txn_core::store::{Filter, MemoryStore, Store, Write, WriteOp};
use txn_core::{
    Collection, CommitVersion, CompareAndSet, Config, DocumentId, Domain, Error, ErrorKind,
    Options, Typed, WaitFor,
};

const DRIFT: Duration = Duration::from_secs(60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Item {
    n: u64,
}

type Items = Collection<Typed<Item>>;

/// A domain whose clock can be set ahead, so that what was written just now is past enough to be read.
struct Shop {
    store: Arc<MemoryStore>,
    wall: Arc<Wall>,
    domain: Domain,
    items: Items,
}

impl Shop {
    async fn open(groups: bool) -> Self {
        let store = Arc::new(MemoryStore::new());
        let wall = Wall::ahead(Duration::ZERO);
        let config = config(&wall).with_group_commit(Some(groups));
        let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
        let items: Items = domain.create_collection("items", None).await.expect("opens");
        domain.enable_history(&items, WEEK).await.expect("begins");
        Self { store, wall, domain, items }
    }

    /// Commits, and returns when.
    async fn write(&self, documents: &[(&str, Option<u64>)]) -> Duration {
        let options = Options::default().with_wait_for(WaitFor::Apply);
        let written = self.domain.run::<_, Error, _>(&options, async |tx| {
            for (id, n) in documents {
                match n {
                    Some(n) => tx.put(&self.items, *id, &Item { n: *n })?,
                    None => tx.delete(&self.items, *id)?,
                }
            }
            Ok(())
        });
        let commit = written.await.expect("writes").receipt.commit_version;
        commit.map_or_else(|| self.wall.wall(), CommitVersion::unix_time)
    }

    /// Lets so much time pass on the wall.
    fn pass(&self, time: Duration) {
        self.wall.set_ahead(time);
    }

    async fn at(&self, time: Duration, ids: &[&str]) -> Result<Vec<Option<u64>>, Error> {
        let values = self.domain.snapshot_at(time)?.get_many(&self.items, ids).await?;
        Ok(values.into_iter().map(|item| item.map(|item| item.n)).collect())
    }
}

fn config(wall: &Arc<Wall>) -> Config {
    Config::default().with_clock(wall.clone()).with_max_drift(DRIFT)
}

const BEFORE: Duration = Duration::from_micros(1);

#[tokio::test]
async fn every_version_is_found_also_those_that_were_deleted() {
    for groups in [false, true] {
        let shop = Shop::open(groups).await;
        let mut told = vec![(shop.wall.wall(), [None, None])];
        let mut now = [None, None];
        for n in 0..50 {
            // Sometimes one, sometimes both, sometimes gone; a deletion of nothing changes nothing.
            let value = (n % 7 != 3).then_some(n);
            let changes: &[_] = match n % 3 {
                0 => &[("a", value)],
                1 => &[("b", value)],
                _ => &[("a", value), ("b", value)],
            };
            for (id, value) in changes {
                now[usize::from(*id == "b")] = *value;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            told.push((shop.write(changes).await, now));
        }
        shop.pass(DRIFT * 2);
        for pair in told.windows(2) {
            let [(_, before), (time, after)] = pair else { unreachable!("windows of two") };
            assert_eq!(
                shop.at(*time, &["a", "b"]).await.expect("reads"),
                after,
                "groups: {groups}"
            );
            let earlier = shop.at(*time - BEFORE, &["b", "a"]).await.expect("reads");
            assert_eq!(earlier, [before[1], before[0]], "groups: {groups}");
        }
        assert!(shop.domain.shutdown(Duration::from_secs(10)).await);
    }
}

#[tokio::test]
async fn what_was_there_before_its_history_began_is_found_too() {
    let shop = Shop::open(false).await;
    let old: Items = shop.domain.create_collection("old", None).await.expect("opens");
    let put = async |id: &str, n| {
        let options = Options::default().with_wait_for(WaitFor::Apply);
        let put =
            shop.domain.run::<_, Error, _>(&options, async |tx| tx.put(&old, id, &Item { n }));
        put.await.expect("writes")
    };
    put("a", 1).await;
    put("b", 1).await;
    shop.domain.enable_history(&old, WEEK).await.expect("begins");
    let began = shop.wall.wall();
    put("a", 2).await;
    put("c", 1).await;
    shop.pass(DRIFT * 2);
    let values =
        shop.domain.snapshot_at(began).expect("past").get_many(&old, ["a", "b", "c"]).await;
    assert_eq!(values.expect("reads"), [Some(Item { n: 1 }), Some(Item { n: 1 }), None]);
    let too_early =
        shop.domain.snapshot_at(began - Duration::from_secs(1)).expect("past").get(&old, "a").await;
    assert_eq!(too_early.expect_err("not kept then").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_document_may_have_a_routing() {
    let shop = Shop::open(false).await;
    let id = DocumentId::routed("x", "r");
    let put = async |n| {
        let written =
            shop.domain.transact::<_, Error, _>(async |tx| tx.put(&shop.items, &id, &Item { n }));
        written.await.expect("writes");
    };
    put(1).await;
    let between = shop.wall.wall();
    put(2).await;
    shop.pass(DRIFT * 2);
    let read = shop.domain.snapshot_at(between).expect("past").get(&shop.items, &id).await;
    assert_eq!(read.expect("reads"), Some(Item { n: 1 }));
}

#[tokio::test]
async fn moments_that_cannot_be_read_are_refused() {
    let shop = Shop::open(false).await;
    shop.write(&[("a", Some(1))]).await;
    let now = shop.wall.wall();
    let too_late = shop.domain.snapshot_at(now).expect_err("somebody may still commit before it");
    assert_eq!(too_late.kind(), ErrorKind::Invalid);
    assert!(too_late.to_string().contains("ask again in"), "{too_late}");
    shop.pass(WEEK + DRIFT);
    let too_early = shop.at(now, &["a"]).await.expect_err("it is kept no longer");
    assert_eq!(too_early.kind(), ErrorKind::Invalid);
    let other: Items = shop.domain.create_collection("other", None).await.expect("opens");
    let latest = shop.domain.latest_timestamp();
    let none = shop.domain.snapshot_at(latest).expect("past").get(&other, "a").await;
    assert!(none.expect_err("no history").to_string().contains("enable_history"));
    let again = shop.domain.enable_history(&shop.items, 2 * WEEK).await;
    assert_eq!(again.expect_err("another time").kind(), ErrorKind::Misconfigured);
    let own: Items = shop.domain.create_collection("other-history", None).await.expect("opens");
    let put = shop.domain.transact::<_, Error, _>(async |tx| tx.put(&own, "a", &Item { n: 1 }));
    put.await.expect("writes");
    let taken = shop.domain.enable_history(&other, WEEK).await.expect_err("somebody's own");
    assert!(taken.to_string().contains("not empty"), "{taken}");
    let short = shop.domain.enable_history(&other, DRIFT).await;
    assert_eq!(short.expect_err("never readable").kind(), ErrorKind::Invalid);
}

/// A plain client overwrites the document: what is not known is not made up.
#[tokio::test]
async fn what_a_plain_client_wrote_over_is_said_to_be_lost() {
    let shop = Shop::open(false).await;
    let first = shop.write(&[("a", Some(1))]).await;
    let key = txn_core::store::Key::new("items", "a");
    let read = shop.store.read_primary(std::slice::from_ref(&key)).await.swap_remove(0);
    let txn_core::store::Read::Found { version, .. } = read else {
        panic!("it is there: {read:?}")
    };
    let plain = Write::new(key, WriteOp::Replace("{\"n\":7}".into(), version));
    shop.store.write_many(&[plain]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let last = shop.write(&[("a", Some(3))]).await;
    shop.pass(DRIFT * 2);
    let lost = shop.at(first, &["a"]).await.expect_err("nobody knows until when");
    assert_eq!(lost.kind(), ErrorKind::Damaged);
    assert!(lost.to_string().contains("items/a"), "{lost}");
    assert_eq!(shop.at(last, &["a"]).await.expect("known again"), [Some(3)]);
    assert_eq!(shop.at(first - BEFORE, &["a"]).await.expect("known before"), [None]);
}

#[tokio::test]
async fn compare_and_set_keeps_what_it_overwrites() {
    let shop = Shop::open(true).await;
    shop.write(&[("a", Some(1))]).await;
    let read = shop.domain.reader().read(&shop.items, "a").await.expect("reads");
    let between = shop.wall.wall();
    let set = shop.domain.compare_and_set(&shop.items, &read, &Item { n: 2 }).await.expect("sets");
    assert!(matches!(set, CompareAndSet::Written(_)));
    let again =
        shop.domain.compare_and_set(&shop.items, &read, &Item { n: 3 }).await.expect("looks");
    assert_eq!(again, CompareAndSet::Mismatch);
    shop.pass(DRIFT * 2);
    assert_eq!(shop.at(between, &["a"]).await.expect("reads"), [Some(1)]);
    assert_eq!(shop.at(shop.domain.latest_timestamp(), &["a"]).await.expect("reads"), [Some(2)]);
}

/// A process that opened the collection before keeps no history, and nobody makes one up.
#[tokio::test]
async fn a_process_learns_of_the_history_when_it_opens_the_collection() {
    let shop = Shop::open(false).await;
    let config = config(&shop.wall);
    let other = Domain::open(shop.store.clone(), "shop", config).await.expect("opens");
    let items: Items = other.collection("items").await.expect("opens");
    let first = shop.write(&[("a", Some(1))]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    other
        .transact::<_, Error, _>(async |tx| tx.put(&items, "a", &Item { n: 2 }))
        .await
        .expect("writes");
    shop.pass(DRIFT * 2);
    assert_eq!(shop.at(first, &["a"]).await.expect("reads"), [Some(1)]);
    other.release_collection("items").await.expect("releases");
    let items: Items = shop.domain.collection("items").await.expect("claims it again");
    let ended = shop.domain.snapshot_at(first).expect("past").get(&items, "a").await;
    assert_eq!(ended.expect_err("no history").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn what_nobody_may_ask_for_is_dropped_and_the_rest_stays() {
    let shop = Shop::open(false).await;
    for n in 0..20 {
        shop.write(&[("a", Some(n)), ("gone", (n < 10).then_some(n))]).await;
    }
    shop.pass(WEEK);
    let start = shop.wall.wall();
    let mut told = Vec::new();
    for n in 20..25 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        told.push((shop.write(&[("a", Some(n))]).await, n));
    }
    assert_eq!(shop.domain.purge_history(&shop.items).await.expect("purges"), 0, "a day too early");
    shop.pass(2 * WEEK - Duration::from_secs(1));
    let kept = versions(&shop).await;
    // Of `a` those before the one that stood there when the week began, of the other one all.
    assert_eq!(shop.domain.purge_history(&shop.items).await.expect("purges"), 19 + 10);
    assert_eq!(versions(&shop).await, kept - 29);
    assert_eq!(shop.domain.purge_history(&shop.items).await.expect("purges"), 0);
    assert_eq!(shop.at(start, &["a", "gone"]).await.expect("kept"), [Some(19), None]);
    for (time, n) in told {
        assert_eq!(shop.at(time, &["a", "gone"]).await.expect("kept"), [Some(n), None]);
    }
}

/// The head says which version somebody may still ask for: nothing is dropped without it.
#[tokio::test]
async fn the_past_of_a_document_whose_head_is_lost_stays() {
    cov_mark::check!(past_without_a_head_stays);
    cov_mark::check!(past_of_an_unreadable_head_stays);
    let shop = Shop::open(false).await;
    for n in 0..5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        shop.write(&[("lost", Some(n)), ("broken", Some(n))]).await;
    }
    let page = shop.store.scan("items-history", &Filter::All, 1_000, None).await.expect("scans");
    let heads: Vec<_> =
        page.documents.into_iter().filter(|(key, ..)| !key.id.starts_with("v/")).collect();
    assert_eq!(heads.len(), 2);
    for (key, version, _) in heads {
        let op = match key.id.contains("lost") {
            true => WriteOp::Delete(version),
            false => WriteOp::Replace("{}".into(), version),
        };
        shop.store.write_many(&[Write::new(key, op)]).await;
    }
    shop.pass(3 * WEEK);
    let before = versions(&shop).await;
    assert_eq!(shop.domain.purge_history(&shop.items).await.expect("purges"), 0);
    assert_eq!(versions(&shop).await, before);
}

async fn versions(shop: &Shop) -> usize {
    let page = shop.store.scan("items-history", &Filter::All, 1_000, None).await.expect("scans");
    page.documents.iter().filter(|(key, ..)| key.id.starts_with("v/")).count()
}

#[tokio::test]
async fn a_transaction_that_changes_nothing_leaves_nothing() {
    let shop = Shop::open(false).await;
    shop.domain
        .transact::<_, Error, _>(async |tx| {
            tx.delete(&shop.items, "absent")?;
            tx.insert(&shop.items, "withdrawn", &Item { n: 1 })?;
            tx.delete(&shop.items, "withdrawn")
        })
        .await
        .expect("runs");
    assert!(shop.domain.shutdown(Duration::from_secs(10)).await);
    let page = shop.store.scan("items-history", &Filter::All, 10, None).await.expect("scans");
    assert_eq!(page.documents.len(), 0);
}
