//! The janitor: unreachable collections, elections between processes, and drops of old days.

use std::time::Duration;

use crate::support::script::close_at_commit;
use crate::support::{Item, Items, Looks, Plain, Setup, Wall, World, config, fresh_tid};
use txn_core::store::Key;
use txn_core::{Config, LockMode, Options};
use txn_sim::Closed;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Opens a domain with a document `a` in each of two collections. A pass scans `bad` before `good`.
async fn world() -> (World, Items, Items) {
    let w: World = Setup::default().collections(&["bad", "good"]).open().await;
    let (bad, good) = (w.items.clone(), w.others[0].clone());
    for items in [&bad, &good] {
        w.put(items, &["a"], &Item { n: 1 }).await.expect("writes");
    }
    (w, bad, good)
}

async fn is_locked(w: &World, items: &Items) -> bool {
    w.memory.text(&items.key("a")).await.contains("transaction_tid")
}

#[tokio::test(start_paused = true)]
async fn unreachable_collection_does_not_stop_the_pass() {
    let (w, bad, good) = world().await;
    for items in [&bad, &good] {
        w.leave_lock(&items.key("a")).await;
    }
    w.store.close("bad", Closed::Entirely);
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(!report.is_clean());
    assert_eq!(report.unreachable.len(), 1, "{report:?}");
    assert_eq!(report.unreachable[0].0, "bad");
    assert!(!is_locked(&w, &good).await);
    let report = w.domain.admin().inspect().await.expect("inspects");
    assert_eq!(report.unreachable[0].0, "bad", "{report:?}");
    w.store.reopen("bad");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1, "{report:?}");
    assert!(!is_locked(&w, &bad).await);
}

#[tokio::test(start_paused = true)]
async fn unreachable_partition_does_not_stop_the_pass() {
    let (w, _, good) = world().await;
    w.leave_lock(&good.key("a")).await;
    let tomorrow = w.memory.partitions().await;
    let tomorrow = tomorrow.iter().max().expect("two").to_string();
    w.store.close(&tomorrow, Closed::Entirely);
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.unreachable.len(), 1, "{report:?}");
    assert_eq!(report.unreachable[0].0, tomorrow);
    assert!(!is_locked(&w, &good).await);
}

#[tokio::test(start_paused = true)]
async fn unreachable_collection_does_not_keep_old_days() {
    let (w, bad, _) = world().await;
    w.leave_lock(&bad.key("a")).await;
    w.store.close("bad", Closed::Entirely);
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
    let (w, bad, good) = world().await;
    let tx = w.domain.begin(&Options::default()).expect("begins");
    tx.get(&bad, "a").await.expect("reads");
    tx.get(&good, "a").await.expect("reads");
    tx.put(&bad, "a", &Item { n: 7 }).expect("buffers");
    tx.put(&good, "a", &Item { n: 7 }).expect("buffers");
    close_at_commit(&w.store, "bad");
    tx.commit().await.expect("commits");
    w.domain.shutdown(Duration::from_secs(60)).await;
    assert!(is_locked(&w, &bad).await, "the apply was cut off");
    let late = w.process(config().with_clock(Wall::ahead(DAY * 9))).await;
    let report = late.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.partitions_dropped, 0, "{report:?}");
    w.store.reopen("bad");
    late.admin().janitor_pass().await.expect("passes");
    let report = late.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(late.reader().get(&bad, "a").await.expect("reads"), Some(Item { n: 7 }));
}

#[tokio::test(start_paused = true)]
async fn processes_share_one_pass_per_interval() {
    let (w, _, good) = world().await;
    let interval = Duration::from_secs(10);
    let mut processes = Vec::new();
    for _ in 0..8 {
        let config = Config::default().with_janitor_interval(Some(interval));
        processes.push(w.process(config).await);
    }
    let looks = Looks::at(&w.store);
    let minutes = 20;
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let (refreshed, scanned) = looks.take();
    let passes = scanned.iter().filter(|name| *name == "good").count();
    let most = usize::try_from(minutes * 60 / interval.as_secs()).expect("fits");
    assert!((most / 2..=most).contains(&passes), "{passes} passes in {minutes} minutes");
    assert!(!refreshed.iter().any(|name| name == "good"), "a pass refreshes no data");
    // All processes but one end. The last process takes over the passes.
    while processes.len() > 1 {
        processes.pop().expect("one").shutdown(Duration::from_secs(5)).await;
    }
    w.leave_lock(&good.key("a")).await;
    tokio::time::sleep(interval * 5).await;
    assert!(!is_locked(&w, &good).await, "the last process ran a pass");
}

#[tokio::test(start_paused = true)]
async fn janitor_recovers_only_dead_owners() {
    let (w, bad, _) = world().await;
    let other = w.process(config()).await;
    let good: Items = other.collection("good").await.expect("opens");
    let tx = other.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(&good, "a").await.expect("locks");
    w.leave_lock(&bad.key("a")).await;
    let live = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        tx.put(&good, "a", &Item { n: 2 })?;
        tx.commit().await
    };
    let (report, committed) = tokio::join!(w.domain.admin().janitor_pass(), live);
    committed.expect("the owner counts as alive");
    assert_eq!(report.expect("passes").recovered, 1);
    assert!(!is_locked(&w, &bad).await);
}

#[tokio::test(start_paused = true)]
async fn janitor_scans_many_locks_in_pages() {
    let (w, ..) = world().await;
    let tid = fresh_tid(&w.domain);
    for n in 0..1_234 {
        let key = Key::new("good", format!("n{n}"));
        let text = format!("{{\"transaction_tid\":\"{tid}\",\"n\":{n}}}");
        w.memory.create(key, &text).await;
    }
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1_234, "{report:?}");
}
