//! Collections that are dropped and recreated between commit and apply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use txn_core::event::Event;
use txn_core::store::{Key, MemoryStore, Store};
use txn_core::{AttemptId, Error, Options, record::State};
use txn_sim::{Scripted, Step};

use crate::support::script::is_commit;
use crate::support::{
    Dies, Item, Items, Plain, Process, Setup, SharedStore, World, record_key, recorded,
};

/// The change of the document in the collection that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Insert,
    Put,
    Delete,
}

/// The document in the recreated collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// A plain client wrote the document.
    Plain,
    /// Another transaction committed the document.
    Committed,
}

fn lost() -> Key {
    Key::new("other", "x")
}

async fn other(p: &Process) -> Items {
    p.domain.create_collection("other", None).await.expect("opens")
}

/// Commits 2 to `items/d0000`, and a change to `other/x`.
async fn committed(w: &SharedStore, change: Change, dies: Dies) -> (Process, AttemptId) {
    let founder = w.process(Dies::Never).await;
    let of_founder = other(&founder).await;
    if change != Change::Insert {
        let insert = founder
            .domain
            .transact::<_, Error, _>(async |tx| tx.insert(&of_founder, "x", &Item { n: 1 }));
        insert.await.expect("inserts");
        // The apply runs after the commit.
        let report = founder.domain.barrier(Duration::from_secs(10)).await.expect("passes");
        assert!(report.is_complete(), "{report:?}");
    }
    let p = w.process(dies).await;
    let of_owner = other(&p).await;
    let tx = p.domain.begin(&recorded()).expect("begins");
    tx.get(&p.items, "d0000").await.expect("reads");
    tx.put(&p.items, "d0000", &Item { n: 2 }).expect("buffers");
    tx.get(&of_owner, "x").await.expect("reads");
    let changed = match change {
        Change::Insert => tx.insert(&of_owner, "x", &Item { n: 2 }),
        Change::Put => tx.put(&of_owner, "x", &Item { n: 2 }),
        Change::Delete => tx.delete(&of_owner, "x"),
    };
    changed.expect("buffers");
    let tid = tx.tid().expect("has its own record");
    tx.commit().await.expect("commits");
    (p, tid)
}

/// Drops and recreates the collection. Returns the document in the new collection.
async fn make_again(w: &SharedStore, then: Then) -> Option<String> {
    w.memory.drop_collection("other").await.expect("drops");
    let p = w.process(Dies::Never).await;
    let again = other(&p).await;
    match then {
        Then::Nothing => {}
        Then::Plain => w.memory.overwrite(&lost(), "{\"n\":5}").await,
        Then::Committed => {
            let insert =
                p.domain.transact::<_, Error, _>(async |tx| tx.insert(&again, "x", &Item { n: 5 }));
            insert.await.expect("inserts");
            p.domain.shutdown(Duration::from_secs(10)).await;
        }
    }
    content(w).await
}

async fn content(w: &SharedStore) -> Option<String> {
    w.memory.stored(&lost()).await.map(|(_, source)| source.to_string())
}

/// Whether the process reported the lost document as applied.
fn is_called_applied(p: &Process, tid: AttemptId) -> bool {
    let rolled_forward = p.log.of(|event| match event {
        Event::RolledForward { tid: of, documents } if *of == tid => {
            Some(documents.contains(&lost()))
        }
        _ => None,
    });
    rolled_forward.contains(&true)
}

fn cases() -> impl Iterator<Item = (Change, Then)> {
    let thens = [Then::Nothing, Then::Plain, Then::Committed];
    let changes = [Change::Insert, Change::Put, Change::Delete];
    changes.into_iter().flat_map(move |change| thens.map(|then| (change, then)))
}

#[tokio::test(start_paused = true)]
async fn owner_reports_a_commit_lost_with_its_collection() {
    for (change, then) in cases() {
        let w = SharedStore::of(1).await;
        let (owner, tid) = committed(&w, change, Dies::HeldBackAfterCommit).await;
        let stands = make_again(&w, then).await;
        owner.held_back.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(owner.log.damaged(), [lost()], "{change:?}, {then:?}");
        assert_eq!(content(&w).await, stands, "{change:?}, {then:?}");
        assert_eq!(owner.values(1).await, [Some(2)], "d0000 is applied");
        assert!(w.memory.is_in_state(tid, State::Committed).await, "{change:?}, {then:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn recoverer_reports_a_lost_commit_then_finishes() {
    cov_mark::check!(commit_to_a_collection_made_again);
    for (change, then) in cases() {
        let w = SharedStore::of(1).await;
        let (_, tid) = committed(&w, change, Dies::AfterCommit).await;
        let stands = make_again(&w, then).await;
        let p = w.process(Dies::Never).await;
        for _ in 0..3 {
            let report = p.domain.admin().janitor_pass().await.expect("passes");
            let is_told = report.damaged.iter().any(|(key, _)| *key == lost());
            assert!(is_told, "{change:?}, {then:?}: {report:?}");
            assert!(w.memory.is_in_state(tid, State::Committed).await, "a node may lag");
            assert_eq!(p.values(1).await, [Some(2)], "d0000 is applied");
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(600)).await;
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.open.is_empty(), "{report:?}");
        assert!(w.memory.is_in_state(tid, State::Finished).await, "the day can be dropped");
        assert_eq!(p.log.damaged(), [lost()], "{change:?}, {then:?}");
        assert!(!is_called_applied(&p, tid), "{change:?}, {then:?}");
        assert_eq!(content(&w).await, stands, "{change:?}, {then:?}");
    }
}

/// Removes the lock at the commit.
///
/// The collection is recreated right before the owner locks the document again.
fn recreate_at_the_lock(store: &Scripted, memory: &Arc<MemoryStore>) {
    let (is_committed, memory) = (AtomicBool::new(false), memory.clone());
    store.before(move |call| {
        let memory = memory.clone();
        if call.writes(is_commit) {
            is_committed.store(true, Ordering::SeqCst);
            return Step::wait(async move { memory.delete(&lost()).await });
        }
        let locks = call.writes(|write| write.key == lost() && write.op.changes());
        match locks && is_committed.swap(false, Ordering::SeqCst) {
            true => Step::wait(async move {
                memory.drop_collection("other").await.expect("drops");
                other(&SharedStore::on(memory).process(Dies::Never).await).await;
            }),
            false => Step::pass(),
        }
    });
}

#[tokio::test(start_paused = true)]
async fn owner_takes_no_lock_in_a_recreated_collection() {
    let w = SharedStore::of(1).await;
    other(&w.process(Dies::Never).await).await;
    let setup = Setup::on(w.memory.clone()).collections(&["other"]);
    let World { store, log, domain, items, .. }: World = setup.open().await;
    recreate_at_the_lock(&store, &w.memory);
    let options = Options::default().with_metadata(Some("\"with a record\"".to_owned()));
    let insert =
        domain.run::<_, Error, _>(&options, async |tx| tx.insert(&items, "x", &Item { n: 2 }));
    let tid = insert.await.expect("commits").receipt.tid.expect("a record");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(content(&w).await, None, "nothing remains in the new collection");
    assert_eq!(log.damaged(), [lost()]);
    assert!(w.memory.is_in_state(tid, State::Committed).await);
}

/// A restored collection holds the lock or the commit. The apply continues there.
#[tokio::test(start_paused = true)]
async fn commit_is_applied_to_a_restored_lock() {
    for is_applied in [false, true] {
        let w = SharedStore::of(1).await;
        let (_, tid) = committed(&w, Change::Put, Dies::AfterCommit).await;
        let copy = content(&w).await.expect("locked");
        let record = w.memory.stored(&record_key(tid)).await.expect("a record").1;
        let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
        let commit = record["commit_version"].as_str().expect("a version");
        w.memory.drop_collection("other").await.expect("drops");
        let p = w.process(Dies::Never).await;
        other(&p).await;
        let applied = format!("{{\"n\":2,\"transaction_version\":\"{commit}\"}}");
        w.memory.overwrite(&lost(), if is_applied { &applied } else { &copy }).await;
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{report:?}");
        let stands = content(&w).await.expect("exists");
        let is_locked = stands.contains("\"transaction_tid\":\"");
        assert!(stands.contains("\"n\":2") && !is_locked, "{stands}");
        assert!(w.memory.is_in_state(tid, State::Finished).await);
    }
}
