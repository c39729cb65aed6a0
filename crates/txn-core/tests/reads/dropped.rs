//! Days that are dropped after a lock was read.
//!
//! The drop comes before the read of the holder's record.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::store::{Outcome, Refusal, RefusalKind};
use txn_core::{Config, Domain, Error, LockMode, Options};
use txn_sim::{Breakpoint, Call, Fate, Scripted, Step};

use crate::support::processes::ids;
use crate::support::{Dies, Item, Process, Setup, SharedStore, Wall, World, config};

/// Stops reads of records at a breakpoint.
fn stop_at_records(store: &Scripted) -> Arc<Breakpoint> {
    let point = Arc::new(Breakpoint::default());
    let stops = point.clone();
    store.before(move |call| {
        let is_read = matches!(call, Call::GetMany(_) | Call::ReadPrimary(_));
        match is_read && call.has(|key| key.collection.starts_with("txn-shop-")) {
            true => stops.step(),
            false => Step::pass(),
        }
    });
    point
}

/// Refuses writes of items.
fn block(store: &Scripted) {
    let (kind, reason) = (RefusalKind::Blocked, "index write blocked".to_owned());
    let refused = Outcome::Invalid(Refusal { kind, reason });
    store.play(move |write| match write.op.changes() && *write.key.collection == *"items" {
        true => Fate::RefuseWith(refused.clone()),
        false => Fate::Pass,
    });
}

/// Settings under which the owner's day is past the retention.
fn late() -> Config {
    let ahead = Wall::ahead(Duration::from_secs(9 * 24 * 3_600));
    config().with_clock(ahead)
}

/// Returns a reading process and a breakpoint. Reads of records stop at the breakpoint.
async fn reading(w: &SharedStore, blocked: bool) -> (World, Arc<Breakpoint>) {
    let reader: World = Setup::on(w.memory.clone()).config(late()).open().await;
    if blocked {
        block(&reader.store);
    }
    let point = stop_at_records(&reader.store);
    (reader, point)
}

/// Begins a transaction that locks two documents and sets both to 2.
///
/// From the commit on, the store refuses the owner's writes of documents.
async fn owner(w: &SharedStore) -> (Process, txn_core::Transaction) {
    let owner = w.process(Dies::HeldBackAfterCommit).await;
    let tx =
        owner.domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    for id in ids(2) {
        tx.get(&owner.items, id.as_str()).await.expect("locks");
        tx.put(&owner.items, id.as_str(), &Item { n: 2 }).expect("buffers");
    }
    (owner, tx)
}

/// Lets the owner apply and drops the day, during a halted read.
async fn drop_the_day(w: &SharedStore, point: &Breakpoint, owner: &Process) {
    point.reached().await;
    owner.held_back.store(false, Ordering::SeqCst);
    assert!(owner.domain.shutdown(Duration::from_secs(30)).await, "drained");
    let janitor = Domain::open_or_create(w.memory.clone(), "shop", late()).await.expect("opens");
    let report = janitor.admin().janitor_pass().await.expect("passes");
    assert!(report.partitions_dropped > 0 && report.is_clean(), "{report:?}");
    point.release();
}

#[tokio::test(start_paused = true)]
async fn verified_read_shows_a_commit_of_a_dropped_day() {
    for blocked in [false, true] {
        let w = SharedStore::of(2).await;
        let (owner, tx) = owner(&w).await;
        let (reader, point) = reading(&w, blocked).await;
        tx.commit().await.expect("commits");
        point.set();
        let read = reader.domain.reader().verified();
        let read = read.get_many(&reader.items, ids(2));
        let (read, ()) = tokio::join!(read, drop_the_day(&w, &point, &owner));
        let read: Vec<_> = read.expect("reads").into_iter().flatten().map(|item| item.n).collect();
        assert_eq!(read, [2, 2], "blocked: {blocked}");
    }
}

#[tokio::test(start_paused = true)]
async fn read_only_sees_a_whole_commit_of_a_dropped_day() {
    for blocked in [false, true] {
        let w = SharedStore::of(2).await;
        let (owner, tx) = owner(&w).await;
        let (reader, point) = reading(&w, blocked).await;
        let items = &reader.items;
        let commit = Mutex::new(Some(tx));
        let read = reader.domain.transact::<_, Error, _>(async |tx| {
            let first = tx.get(items, "d0000").await?.map(|item| item.n);
            let committing = commit.lock().take();
            if let Some(committing) = committing {
                committing.commit().await.expect("commits");
                let second = tx.get(items, "d0001").await?.map(|item| item.n);
                assert_eq!((first, second), (Some(1), Some(2)), "a snapshot of two moments");
                point.set();
                return Ok((first, second));
            }
            Ok((first, tx.get(items, "d0001").await?.map(|item| item.n)))
        });
        let (read, ()) = tokio::join!(read, drop_the_day(&w, &point, &owner));
        assert_eq!(read.expect("reads"), (Some(2), Some(2)), "blocked: {blocked}");
    }
}
