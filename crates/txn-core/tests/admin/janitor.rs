//! The janitor: unreachable collections, elections between processes, and drops of old days.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Item, Items, TestStore, Wall, config};
use txn_core::store::{Key, Outcome, Store, Write, WriteOp};
use txn_core::{Config, Domain, Error, LockMode, Options};

const DAY: Duration = Duration::from_secs(24 * 3_600);

struct World {
    store: Arc<TestStore>,
    domain: Domain,
    bad: Items,
    good: Items,
}

/// Opens a domain with a document `a` in each of two collections. A pass scans `bad` before `good`.
async fn world() -> World {
    let store = Arc::new(TestStore::default());
    let domain = Domain::open_or_create(store.clone(), "shop", config()).await.expect("opens");
    let bad: Items = domain.create_collection("bad", None).await.expect("opens");
    let good: Items = domain.create_collection("good", None).await.expect("opens");
    let w = World { store, domain, bad, good };
    for items in [&w.bad, &w.good] {
        let options = Options::default().with_wait_for(txn_core::WaitFor::Apply);
        let write =
            w.domain.run::<_, Error, _>(&options, async |tx| tx.put(items, "a", &Item { n: 1 }));
        write.await.expect("writes");
    }
    w
}

impl World {
    /// Leaves a lock as of a process that died before the commit.
    async fn leave_lock(&self, items: &Items) {
        self.store.leave_lock(&self.domain, items.key("a")).await;
    }

    async fn is_locked(&self, items: &Items) -> bool {
        self.store.text(&items.key("a")).await.contains("transaction_tid")
    }

    async fn process(&self, config: Config) -> Domain {
        Domain::open(self.store.clone(), "shop", config).await.expect("opens")
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_collection_does_not_stop_the_pass() {
    let w = world().await;
    for items in [&w.bad, &w.good] {
        w.leave_lock(items).await;
    }
    w.store.close("bad");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(!report.is_clean());
    assert_eq!(report.unreachable.len(), 1, "{report:?}");
    assert_eq!(report.unreachable[0].0, "bad");
    assert!(!w.is_locked(&w.good).await);
    let report = w.domain.admin().inspect().await.expect("inspects");
    assert_eq!(report.unreachable[0].0, "bad", "{report:?}");
    w.store.reopen("bad");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1, "{report:?}");
    assert!(!w.is_locked(&w.bad).await);
}

#[tokio::test(start_paused = true)]
async fn unreachable_partition_does_not_stop_the_pass() {
    let w = world().await;
    w.leave_lock(&w.good).await;
    let tomorrow = w.store.list_collections("txn-shop-").await.expect("lists");
    let tomorrow = tomorrow.iter().max().expect("two").to_string();
    w.store.close(&tomorrow);
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.unreachable.len(), 1, "{report:?}");
    assert_eq!(report.unreachable[0].0, tomorrow);
    assert!(!w.is_locked(&w.good).await);
}

#[tokio::test(start_paused = true)]
async fn unreachable_collection_does_not_keep_old_days() {
    let w = world().await;
    w.leave_lock(&w.bad).await;
    w.store.close("bad");
    let late = w.process(config().with_clock(Wall::ahead(DAY * 9))).await;
    let report = late.admin().janitor_pass().await.expect("passes");
    assert!(report.partitions_dropped > 0, "{report:?}");
    // The lock in `bad` had no record in the dropped days, so the lock is void.
    w.store.reopen("bad");
    let report = late.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn unreachable_participant_keeps_the_day() {
    cov_mark::check!(day_with_an_open_record_stays);
    let w = world().await;
    let tx = w.domain.begin(&Options::default()).expect("begins");
    tx.get(&w.bad, "a").await.expect("reads");
    tx.get(&w.good, "a").await.expect("reads");
    tx.put(&w.bad, "a", &Item { n: 7 }).expect("buffers");
    tx.put(&w.good, "a", &Item { n: 7 }).expect("buffers");
    w.store.close_at_commit("bad");
    tx.commit().await.expect("commits");
    w.domain.shutdown(Duration::from_secs(60)).await;
    assert!(w.is_locked(&w.bad).await, "the apply was cut off");
    let late = w.process(config().with_clock(Wall::ahead(DAY * 9))).await;
    let report = late.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.partitions_dropped, 0, "{report:?}");
    w.store.reopen("bad");
    late.admin().janitor_pass().await.expect("passes");
    let report = late.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(late.reader().get(&w.bad, "a").await.expect("reads"), Some(Item { n: 7 }));
}

#[tokio::test(start_paused = true)]
async fn processes_share_one_pass_per_interval() {
    let w = world().await;
    let interval = Duration::from_secs(10);
    let mut processes = Vec::new();
    for _ in 0..8 {
        let config = Config::default().with_janitor_interval(Some(interval));
        processes.push(w.process(config).await);
    }
    w.store.looked_at();
    let minutes = 20;
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let (refreshed, scanned) = w.store.looked_at();
    let passes = scanned.iter().filter(|name| *name == "good").count();
    let most = usize::try_from(minutes * 60 / interval.as_secs()).expect("fits");
    assert!((most / 2..=most).contains(&passes), "{passes} passes in {minutes} minutes");
    assert!(!refreshed.iter().any(|name| name == "good"), "a pass refreshes no data");
    // All processes but one end. The last process takes over the passes.
    while processes.len() > 1 {
        processes.pop().expect("one").shutdown(Duration::from_secs(5)).await;
    }
    w.leave_lock(&w.good).await;
    tokio::time::sleep(interval * 5).await;
    assert!(!w.is_locked(&w.good).await, "the last process ran a pass");
}

#[tokio::test(start_paused = true)]
async fn janitor_recovers_only_dead_owners() {
    let w = world().await;
    let other = w.process(config()).await;
    let good: Items = other.collection("good").await.expect("opens");
    let tx = other.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(&good, "a").await.expect("locks");
    w.leave_lock(&w.bad).await;
    let live = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        tx.put(&good, "a", &Item { n: 2 })?;
        tx.commit().await
    };
    let (report, committed) = tokio::join!(w.domain.admin().janitor_pass(), live);
    committed.expect("the owner counts as alive");
    assert_eq!(report.expect("passes").recovered, 1);
    assert!(!w.is_locked(&w.bad).await);
}

#[tokio::test(start_paused = true)]
async fn janitor_scans_many_locks_in_pages() {
    let w = world().await;
    let tx = w.domain.begin(&Options::default()).expect("begins");
    let tid = tx.tid();
    drop(tx);
    for n in 0..1_234 {
        let key = Key::new("good", format!("n{n}"));
        let text = format!("{{\"transaction_tid\":\"{tid}\",\"n\":{n}}}");
        let create = Write::new(key, WriteOp::Create(text.into()));
        let outcomes = w.store.write_many(&[create]).await;
        assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
    }
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1_234, "{report:?}");
}
