//! The barrier, in virtual time.
//!
//! After a barrier, every earlier acknowledged commit is applied and searchable.

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::{MemoryStore, Outcome, Read, Store};
use txn_core::{Collection, Error, ErrorKind, LockMode, Options, Raw};
use txn_sim::{Fate, Scripted};

use crate::support::script::is_apply;
use crate::support::{Looks, Setup, World, recorded};

async fn start(store: &Arc<MemoryStore>) -> World<Raw> {
    Setup::on(store.clone()).open().await
}

/// Refuses the applies of a process.
fn shut(store: &Scripted) {
    store.play(|write| match is_apply(write) {
        true => Fate::RefuseWith(Outcome::Rejected("shut".to_owned())),
        false => Fate::Pass,
    });
}

async fn put(process: &World<Raw>, ids: &[&str], text: &str) {
    let (items, text) = (&process.items, Raw::new(text));
    let put = process.domain.transact::<_, Error, _>(async |tx| {
        ids.iter().try_for_each(|id| tx.put(items, *id, &text))
    });
    put.await.expect("commits");
}

/// Whether a plain client sees two documents with this text, unlocked.
async fn plainly(store: &MemoryStore, items: &Collection<Raw>, text: &str) -> bool {
    let reads = store.get_many(&[items.key("a"), items.key("b")]).await;
    let inner = &text[1..text.len() - 1];
    reads.iter().all(|read| match read {
        Read::Found { source, .. } => {
            source.contains(inner) && !source.contains(txn_core::store::fields::TRANSACTION_TID)
        }
        _ => false,
    })
}

const NEW: &str = "{\"n\":2}";

#[tokio::test(start_paused = true)]
async fn barrier_applies_and_refreshes_own_commits() {
    let store = Arc::new(MemoryStore::new());
    let process = start(&store).await;
    let others: Collection<Raw> =
        process.domain.create_collection("others", None).await.expect("opens");
    shut(&process.store);
    put(&process, &["a", "b"], NEW).await;
    let wait = process.domain.barrier(Duration::from_secs(10));
    tokio::pin!(wait);
    let early = tokio::time::timeout(Duration::from_secs(5), &mut wait).await;
    assert!(early.is_err(), "committed but not applied: {early:?}");
    assert!(!plainly(&store, &process.items, NEW).await);
    let looks = Looks::at(&process.store);
    process.store.play(|_| Fate::Pass);
    wait.await.expect("passes").into_result().expect("applied");
    assert!(plainly(&store, &process.items, NEW).await);
    let (refreshed, _) = looks.take();
    assert!(
        [process.items.name(), others.name()]
            .iter()
            .all(|name| refreshed.iter().any(|of| of == name))
    );
}

#[tokio::test(start_paused = true)]
async fn barrier_rolls_a_dead_process_forward() {
    cov_mark::check!(foreign_commit_rolled_forward);
    let store = Arc::new(MemoryStore::new());
    let (dead, alive) = (start(&store).await, start(&store).await);
    shut(&dead.store);
    put(&dead, &["a", "b"], NEW).await;
    let report = alive.domain.barrier(Duration::from_secs(10)).await.expect("passes");
    report.into_result().expect("applied here");
    assert!(plainly(&store, &alive.items, NEW).await);
}

#[tokio::test(start_paused = true)]
async fn barrier_timeout_names_the_unapplied_transaction() {
    let store = Arc::new(MemoryStore::new());
    let process = start(&store).await;
    shut(&process.store);
    let tx = process.domain.begin(&recorded()).expect("begins");
    let tid = tx.tid().expect("has its own record");
    tx.put(&process.items, "a", &Raw::new(NEW)).expect("buffers");
    tx.commit().await.expect("commits");
    let late = process.domain.barrier(Duration::from_secs(3)).await.expect_err("late");
    assert_eq!((late.kind(), late.tid()), (ErrorKind::Conflict, Some(tid)));
    let endless = process.domain.barrier(Duration::MAX).await.expect_err("refused");
    assert_eq!(endless.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn barrier_does_not_wait_for_uncommitted_locks() {
    let store = Arc::new(MemoryStore::new());
    let (busy, other) = (start(&store).await, start(&store).await);
    put(&busy, &["a", "b"], "{\"n\":1}").await;
    let tx =
        busy.domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(&busy.items, "a").await.expect("locks");
    // After 2 s the heartbeat has written a record.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!other.domain.admin().inspect().await.expect("inspects").open.is_empty());
    let report = other.domain.barrier(Duration::from_millis(1)).await.expect("passes");
    report.into_result().expect("no commit to wait for");
    tx.rollback().await;
}
