//! Collections with a history, and snapshot readers.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Item, Items, Plain, Setup, Wall, World};
use txn_core::clock::Clock;
use txn_core::store::{Filter, Key, MemoryStore, Store, Write, WriteOp};
use txn_core::{
    CommitVersion, CompareAndSet, Config, DocumentId, Domain, Error, ErrorKind, Options, WaitFor,
};

const DRIFT: Duration = Duration::from_secs(60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A domain whose clock can be set ahead, to read recent writes.
struct Timeline {
    memory: Arc<MemoryStore>,
    wall: Arc<Wall>,
    domain: Domain,
    items: Items,
}

impl Timeline {
    async fn open(groups: bool) -> Self {
        let wall = Wall::ahead(Duration::ZERO);
        let config = config(&wall).with_group_commit(Some(groups));
        let World { memory, domain, items, .. } = Setup::default().config(config).open().await;
        domain.history().enable(&items, WEEK).await.expect("begins");
        Self { memory, wall, domain, items }
    }

    /// Commits, and returns the time of the commit.
    async fn write(&self, documents: &[(&str, Option<i64>)]) -> Duration {
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

    /// Sets the wall clock ahead by `time`.
    fn pass(&self, time: Duration) {
        self.wall.set_ahead(time);
    }

    async fn at(&self, time: Duration, ids: &[&str]) -> Result<Vec<Option<i64>>, Error> {
        let values = self.domain.history().at(time)?.get_many(&self.items, ids).await?;
        Ok(values.into_iter().map(|item| item.map(|item| item.n)).collect())
    }
}

fn config(wall: &Arc<Wall>) -> Config {
    Config::default().with_clock(wall.clone()).with_max_drift(DRIFT)
}

const BEFORE: Duration = Duration::from_micros(1);

#[tokio::test]
async fn snapshot_finds_every_version_and_deletion() {
    for groups in [false, true] {
        let shop = Timeline::open(groups).await;
        let mut told = vec![(shop.wall.wall(), [None, None])];
        let mut now = [None, None];
        for n in 0..50 {
            // Each step writes or deletes one or both documents. Deleting an absent document
            // changes nothing.
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
async fn snapshot_finds_documents_older_than_the_history() {
    let shop = Timeline::open(false).await;
    let old: Items = shop.domain.create_collection("old", None).await.expect("opens");
    let put = async |id: &str, n| {
        let options = Options::default().with_wait_for(WaitFor::Apply);
        let put =
            shop.domain.run::<_, Error, _>(&options, async |tx| tx.put(&old, id, &Item { n }));
        put.await.expect("writes")
    };
    put("a", 1).await;
    put("b", 1).await;
    shop.domain.history().enable(&old, WEEK).await.expect("begins");
    let began = shop.wall.wall();
    put("a", 2).await;
    put("c", 1).await;
    shop.pass(DRIFT * 2);
    let values =
        shop.domain.history().at(began).expect("kept").get_many(&old, ["a", "b", "c"]).await;
    assert_eq!(values.expect("reads"), [Some(Item { n: 1 }), Some(Item { n: 1 }), None]);
    let too_early = shop
        .domain
        .history()
        .at(began - Duration::from_secs(1))
        .expect("kept")
        .get(&old, "a")
        .await;
    assert_eq!(too_early.expect_err("no history at that time").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn history_keeps_routed_documents() {
    let shop = Timeline::open(false).await;
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
    let read = shop.domain.history().at(between).expect("kept").get(&shop.items, &id).await;
    assert_eq!(read.expect("reads"), Some(Item { n: 1 }));
}

#[tokio::test]
async fn unreadable_timestamps_are_refused() {
    let shop = Timeline::open(false).await;
    shop.write(&[("a", Some(1))]).await;
    let now = shop.wall.wall();
    let too_late = shop.domain.history().at(now).expect_err("a commit may still precede");
    assert_eq!(too_late.kind(), ErrorKind::Invalid);
    assert!(too_late.to_string().contains("ask again in"), "{too_late}");
    shop.pass(WEEK + DRIFT);
    let too_early = shop.at(now, &["a"]).await.expect_err("no longer kept");
    assert_eq!(too_early.kind(), ErrorKind::Invalid);
    let other: Items = shop.domain.create_collection("other", None).await.expect("opens");
    let latest = shop.domain.history().latest_timestamp();
    let none = shop.domain.history().at(latest).expect("kept").get(&other, "a").await;
    assert!(none.expect_err("no history").to_string().contains("History::enable"));
    let again = shop.domain.history().enable(&shop.items, 2 * WEEK).await;
    assert_eq!(again.expect_err("another retention").kind(), ErrorKind::Misconfigured);
    let own: Items = shop.domain.create_collection("other-history", None).await.expect("opens");
    let put = shop.domain.transact::<_, Error, _>(async |tx| tx.put(&own, "a", &Item { n: 1 }));
    put.await.expect("writes");
    let taken = shop.domain.history().enable(&other, WEEK).await.expect_err("in use");
    assert!(taken.to_string().contains("not empty"), "{taken}");
    let short = shop.domain.history().enable(&other, DRIFT).await;
    assert_eq!(short.expect_err("never readable").kind(), ErrorKind::Invalid);
}

/// A plain client overwrites the document. The history cannot know when the old version ended.
#[tokio::test]
async fn version_overwritten_by_a_plain_client_is_damaged() {
    let shop = Timeline::open(false).await;
    let first = shop.write(&[("a", Some(1))]).await;
    shop.memory.overwrite(&Key::new("items", "a"), "{\"n\":7}").await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let last = shop.write(&[("a", Some(3))]).await;
    shop.pass(DRIFT * 2);
    let lost = shop.at(first, &["a"]).await.expect_err("the end of the version is unknown");
    assert_eq!(lost.kind(), ErrorKind::Damaged);
    assert!(lost.to_string().contains("items/a"), "{lost}");
    assert_eq!(shop.at(last, &["a"]).await.expect("known again"), [Some(3)]);
    assert_eq!(shop.at(first - BEFORE, &["a"]).await.expect("known before"), [None]);
}

#[tokio::test]
async fn compare_and_set_keeps_the_overwritten_version() {
    let shop = Timeline::open(true).await;
    shop.write(&[("a", Some(1))]).await;
    let read = shop.domain.reader().read(&shop.items, "a").await.expect("reads");
    let between = shop.wall.wall();
    let set = shop.domain.compare_and_set(&shop.items, &read, &Item { n: 2 }).await.expect("sets");
    assert!(matches!(set, CompareAndSet::Written(_)));
    let again =
        shop.domain.compare_and_set(&shop.items, &read, &Item { n: 3 }).await.expect("answers");
    assert_eq!(again, CompareAndSet::Mismatch);
    shop.pass(DRIFT * 2);
    assert_eq!(shop.at(between, &["a"]).await.expect("reads"), [Some(1)]);
    assert_eq!(
        shop.at(shop.domain.history().latest_timestamp(), &["a"]).await.expect("reads"),
        [Some(2)]
    );
}

/// Another process opens the collection and keeps its history. A release ends the history.
#[tokio::test]
async fn process_learns_of_the_history_at_the_opening() {
    let shop = Timeline::open(false).await;
    let config = config(&shop.wall);
    let other = Domain::open(shop.memory.clone(), "shop", config).await.expect("opens");
    let items: Items = other.collection("items").await.expect("opens");
    let first = shop.write(&[("a", Some(1))]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    other
        .transact::<_, Error, _>(async |tx| tx.put(&items, "a", &Item { n: 2 }))
        .await
        .expect("writes");
    shop.pass(DRIFT * 2);
    assert_eq!(shop.at(first, &["a"]).await.expect("reads"), [Some(1)]);
    other.admin().release_collection("items").await.expect("releases");
    let items: Items = shop.domain.collection("items").await.expect("claims again");
    let ended = shop.domain.history().at(first).expect("kept").get(&items, "a").await;
    assert_eq!(ended.expect_err("no history").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn purge_drops_only_unreadable_versions() {
    let shop = Timeline::open(false).await;
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
    assert_eq!(
        shop.domain.history().purge(&shop.items).await.expect("purges"),
        0,
        "a day too early"
    );
    shop.pass(2 * WEEK - Duration::from_secs(1));
    let kept = versions(&shop).await;
    // Purged: the versions of `a` before the version at the start of the week, and all of `gone`.
    assert_eq!(shop.domain.history().purge(&shop.items).await.expect("purges"), 19 + 10);
    assert_eq!(versions(&shop).await, kept - 29);
    assert_eq!(shop.domain.history().purge(&shop.items).await.expect("purges"), 0);
    assert_eq!(shop.at(start, &["a", "gone"]).await.expect("kept"), [Some(19), None]);
    for (time, n) in told {
        assert_eq!(shop.at(time, &["a", "gone"]).await.expect("kept"), [Some(n), None]);
    }
}

/// The head names the version that a snapshot may still read. Without a head, the purge drops no
/// version.
#[tokio::test]
async fn purge_keeps_versions_without_a_readable_head() {
    cov_mark::check!(past_without_a_head_stays);
    cov_mark::check!(past_of_an_unreadable_head_stays);
    let shop = Timeline::open(false).await;
    for n in 0..5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        shop.write(&[("lost", Some(n)), ("broken", Some(n))]).await;
    }
    let page = shop.memory.scan("items-history", &Filter::All, 1_000, None).await.expect("scans");
    let heads: Vec<_> =
        page.documents.into_iter().filter(|(key, ..)| !key.id.starts_with("v/")).collect();
    assert_eq!(heads.len(), 2);
    for (key, version, _) in heads {
        let op = match key.id.contains("lost") {
            true => WriteOp::Delete(version),
            false => WriteOp::Replace("{}".into(), version),
        };
        shop.memory.write_many(&[Write::new(key, op)]).await;
    }
    shop.pass(3 * WEEK);
    let before = versions(&shop).await;
    assert_eq!(shop.domain.history().purge(&shop.items).await.expect("purges"), 0);
    assert_eq!(versions(&shop).await, before);
}

async fn versions(shop: &Timeline) -> usize {
    let page = shop.memory.scan("items-history", &Filter::All, 1_000, None).await.expect("scans");
    page.documents.iter().filter(|(key, ..)| key.id.starts_with("v/")).count()
}

#[tokio::test]
async fn unchanged_documents_leave_no_history() {
    let shop = Timeline::open(false).await;
    shop.domain
        .transact::<_, Error, _>(async |tx| {
            tx.delete(&shop.items, "absent")?;
            tx.insert(&shop.items, "withdrawn", &Item { n: 1 })?;
            tx.delete(&shop.items, "withdrawn")
        })
        .await
        .expect("runs");
    assert!(shop.domain.shutdown(Duration::from_secs(10)).await);
    let page = shop.memory.scan("items-history", &Filter::All, 10, None).await.expect("scans");
    assert_eq!(page.documents.len(), 0);
}
