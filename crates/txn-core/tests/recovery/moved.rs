//! Locks that a plain client moves or removes after the commit.
//!
//! `_update_by_query` and `_delete_by_query` do this to placeholders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::store::{Filter, Key, MemoryStore};
use txn_core::{AttemptId, Config, Error, ErrorKind, Options, WaitFor, record::State};
use txn_sim::{Call, Scripted, Step};

use crate::support::script::is_commit;
use crate::support::{Dies, Item, Plain, Process, Setup, SharedStore, World, recorded};

/// The change of a document by the plain client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meddling {
    /// Writes the same content again.
    Rewrite,
    /// Adds a field.
    AddField,
    /// Deletes the document.
    Remove,
}

/// Lets a plain client change documents after the next commit.
///
/// With `touches_record`, another process touches the record of the commit, too.
fn meddle_at_commit(
    store: &Scripted,
    memory: Arc<MemoryStore>,
    meddling: Vec<(Key, Meddling)>,
    touches_record: bool,
) {
    let meddling = Mutex::new(meddling);
    store.after(move |call| {
        let Call::WriteMany(writes) = call else { return Step::pass() };
        let Some(commit) = writes.iter().find(|write| is_commit(write)) else {
            return Step::pass();
        };
        let (memory, meddling) = (memory.clone(), std::mem::take(&mut *meddling.lock()));
        let record = (touches_record && !meddling.is_empty()).then(|| commit.key.clone());
        Step::wait(async move { meddle(&memory, meddling, record).await })
    });
}

async fn meddle(memory: &MemoryStore, meddling: Vec<(Key, Meddling)>, record: Option<Key>) {
    if let Some(record) = record {
        memory.overwrite(&record, &memory.text(&record).await).await;
    }
    for (key, what) in meddling {
        let source = memory.text(&key).await;
        assert!(source.contains("transaction_tid"), "{source}");
        match what {
            Meddling::Rewrite => memory.overwrite(&key, &source).await,
            Meddling::AddField => {
                memory.overwrite(&key, &source.replace("}", ",\"seen\":true}")).await;
            }
            Meddling::Remove => memory.delete(&key).await,
        }
    }
}

/// Commits an insert of `new` and a change of `d0000`.
///
/// A plain client changes documents right after the commit.
async fn owner(
    w: &SharedStore,
    meddling: &[(&str, Meddling)],
    dies: Dies,
    touches_record: bool,
) -> (Process, AttemptId) {
    let keys = meddling.iter().map(|(id, what)| (Key::new("items", *id), *what)).collect();
    let owner = w.process(dies).await;
    meddle_at_commit(&owner.store, w.memory.clone(), keys, touches_record);
    let (domain, items) = (&owner.domain, &owner.items);
    let tx = domain.begin(&recorded()).expect("begins");
    let tid = tx.tid().expect("has its own record");
    tx.get(items, "d0000").await.expect("reads");
    tx.put(items, "d0000", &Item { n: 7 }).expect("buffers");
    tx.insert(items, "new", &Item { n: 7 }).expect("buffers");
    tx.commit().await.expect("commits");
    // The owner ends the work after the commit within this time.
    tokio::time::sleep(Duration::from_secs(40)).await;
    (owner, tid)
}

async fn content(w: &SharedStore, id: &str) -> Option<String> {
    let stored = w.memory.stored(&Key::new("items", id)).await?.1;
    let value: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    assert_eq!(value.get("transaction_tid"), None, "{stored}");
    Some(value["n"].to_string())
}

#[tokio::test(start_paused = true)]
async fn owner_overwrites_locks_moved_by_a_plain_client() {
    cov_mark::check!(unapplied_participant_relocked);
    use Meddling::{AddField, Remove, Rewrite};
    for (meddling, told) in [
        (vec![("new", Rewrite)], vec![]),
        (vec![("new", Remove)], vec!["new"]),
        (vec![("new", AddField)], vec!["new"]),
        (vec![("d0000", Rewrite)], vec![]),
        (vec![("d0000", AddField)], vec!["d0000"]),
        (vec![("d0000", Remove)], vec!["d0000"]),
        (vec![("d0000", Remove), ("new", Remove)], vec!["d0000", "new"]),
        (vec![("d0000", Rewrite), ("new", Rewrite)], vec![]),
    ] {
        let w = SharedStore::of(1).await;
        let (owner, tid) = owner(&w, &meddling, Dies::Never, false).await;
        for id in ["d0000", "new"] {
            assert_eq!(content(&w, id).await.as_deref(), Some("7"), "{id} after {meddling:?}");
        }
        let damaged = owner.log.damaged();
        let names: Vec<&str> = damaged.iter().map(|key| &*key.id).collect();
        assert_eq!(names, told, "{meddling:?}");
        assert!(w.memory.is_in_state(tid, State::Finished).await, "{meddling:?}");
        let report = owner.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn recoverer_reports_a_participant_it_cannot_settle() {
    cov_mark::check!(unclear_participant_reported);
    for meddling in [Meddling::Rewrite, Meddling::AddField, Meddling::Remove] {
        let w = SharedStore::of(1).await;
        let (_dead, tid) = owner(&w, &[("new", meddling)], Dies::AfterCommit, false).await;
        let p = w.process(Dies::Never).await;
        for _ in 0..2 {
            let report = p.domain.admin().janitor_pass().await.expect("passes");
            let new = p.items.key("new");
            assert!(report.damaged.iter().any(|(key, _)| *key == new), "{meddling:?}: {report:?}");
            assert!(p.log.damaged().contains(&new));
            assert!(w.memory.is_in_state(tid, State::Committed).await, "{meddling:?}");
            assert_eq!(content(&w, "d0000").await.as_deref(), Some("7"), "d0000 is applied");
        }
        if meddling != Meddling::Remove {
            // The placeholder blocks every insert, so an operator deletes the placeholder.
            w.memory.delete(&p.items.key("new")).await;
        }
        let insert = p.domain.transact::<_, Error, _>(async |tx| {
            tx.insert(&p.items, "new", &Item { n: 7 })?;
            tx.get(&p.items, "d0000").await.map(drop)
        });
        insert.await.expect("an operator writes the document again");
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{meddling:?}: {report:?}");
        assert!(w.memory.is_in_state(tid, State::Finished).await, "{meddling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn recoverer_finds_a_deletion_by_its_record() {
    cov_mark::check!(deletion_on_record);
    for (id, next_day) in [("new", false), ("d0000", false), ("new", true)] {
        let w = SharedStore::of(1).await;
        let (_dead, tid) = owner(&w, &[], Dies::BeforeFinish, false).await;
        assert!(w.memory.is_in_state(tid, State::Committed).await);
        let p = w.process(Dies::Never).await;
        let delete = p.domain.transact::<_, Error, _>(async |tx| {
            tx.get(&p.items, id).await?;
            tx.delete(&p.items, id)
        });
        delete.await.expect("deletes");
        if next_day {
            tokio::time::sleep(Duration::from_secs(24 * 3_600)).await;
        }
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{id}: {report:?}");
        assert!(p.log.damaged().is_empty(), "{id}: {:?}", p.log.damaged());
        assert!(w.memory.is_in_state(tid, State::Finished).await, "{id}");
        assert_eq!(content(&w, id).await, None, "the document stays deleted");
    }
}

/// Lets the first search for deletions take longer than a lease.
fn slow_search(store: &Scripted) {
    let was_slow = AtomicBool::new(false);
    store.before(move |call| match call {
        Call::Scan(_, Filter::AnyOf("deletes", _)) if !was_slow.swap(true, Ordering::SeqCst) => {
            Step::delay(2 * Config::default().lease())
        }
        _ => Step::pass(),
    });
}

#[tokio::test(start_paused = true)]
async fn janitor_retries_a_participant_that_no_scan_shows() {
    let w = SharedStore::of(1).await;
    let (_dead, tid) = owner(&w, &[], Dies::BeforeFinish, false).await;
    let World { store, domain, items, .. }: World = Setup::on(w.memory.clone()).open().await;
    slow_search(&store);
    let delete = domain.transact::<_, Error, _>(async |tx| {
        tx.get(&items, "new").await?;
        tx.delete(&items, "new")
    });
    delete.await.expect("deletes");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
    assert!(w.memory.is_in_state(tid, State::Finished).await);
}

#[tokio::test(start_paused = true)]
async fn owner_with_a_touched_record_overwrites_nothing() {
    for meddling in [Meddling::Rewrite, Meddling::Remove] {
        let w = SharedStore::of(1).await;
        let (owner, tid) = owner(&w, &[("new", meddling)], Dies::Never, true).await;
        let new = owner.items.key("new");
        assert_eq!(owner.log.damaged(), std::slice::from_ref(&new), "{meddling:?}");
        assert!(w.memory.is_in_state(tid, State::Committed).await, "{meddling:?}");
        let stands = w.memory.stored(&new).await.map(|(_, source)| source);
        assert!(stands.is_none_or(|source| source.contains("transaction_absent")));
    }
}

#[tokio::test(start_paused = true)]
async fn readers_see_an_insert_under_a_moved_placeholder() {
    let w = SharedStore::of(1).await;
    owner(&w, &[("new", Meddling::Rewrite)], Dies::AfterCommit, false).await;
    let p = w.process(Dies::Never).await;
    let read = p.domain.reader().get(&p.items, "new").await.expect("reads");
    assert_eq!(read, Some(Item { n: 7 }), "the commit was acknowledged");
    let error = p.domain.transact::<_, Error, _>(async |tx| {
        tx.insert(&p.items, "new", &Item { n: 8 })?;
        tx.get(&p.items, "d0000").await.map(drop)
    });
    let error = error.await.expect_err("the apply is unclear");
    assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Exists), "{error}");
    let options = Options::default().with_wait_for(WaitFor::Apply);
    let change = p.domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(&p.items, "d0000").await?;
        tx.put(&p.items, "d0000", &Item { n: 9 })
    });
    change.await.expect("the other document can be written");
}
