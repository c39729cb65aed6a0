//! Orphan locks: copied by an application, or missing in the record.

use txn_core::event::Event;
use txn_core::store::Key;
use txn_core::{AttemptId, Options, record::State};

use crate::support::processes::ids;
use crate::support::{Dies, Item, Plain, Process, SharedStore, recorded};

/// Copies a document with a lock of `holder` to another id.
async fn locked_copy(w: &SharedStore, from: &Key, to: &Key, holder: AttemptId) {
    let (_, source) = w.memory.stored(from).await.expect("a document");
    let rest = source.split_once(',').expect("fields").1;
    let own = if source.contains("\"transaction_tid\"") { rest } else { &source[1..] };
    w.memory.overwrite(to, &format!("{{\"transaction_tid\":\"{holder}\",{own}")).await;
}

/// Runs a transaction that is committed, applied and finished.
async fn finished(p: &Process) -> AttemptId {
    let write = async |tx: &txn_core::Transaction| {
        for id in ids(2) {
            tx.get(&p.items, id.as_str()).await?;
            tx.put(&p.items, id.as_str(), &Item { n: 2 })?;
        }
        tx.tid()
    };
    let options = recorded().with_wait_for(txn_core::WaitFor::Apply);
    p.domain.run(&options, write).await.expect("commits").value
}

#[tokio::test(start_paused = true)]
async fn writer_replaces_a_copied_lock() {
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    let holder = finished(&p).await;
    locked_copy(&w, &p.items.key("d0000"), &p.items.key("copy"), holder).await;
    let (set, counts) = p.cost(set(&p, &["copy", "d0001"])).await;
    set.expect("the lock is void");
    // The writer waits a moment for a finished holder: the lock may be older than the finish.
    assert!(counts.requests() < 30, "{counts}");
    let report = p.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 0, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn janitor_removes_a_copied_lock_and_keeps_content() {
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    let holder = finished(&p).await;
    let copy = p.items.key("copy");
    locked_copy(&w, &p.items.key("d0000"), &copy, holder).await;
    let report = p.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1, "{report:?}");
    let (_, source) = w.memory.stored(&copy).await.expect("kept");
    assert!(source.contains("\"n\":2") && !source.contains("transaction_tid"), "{source}");
}

#[tokio::test(start_paused = true)]
async fn a_copied_placeholder_is_deleted() {
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    let holder = finished(&p).await;
    let placeholder = format!("{{\"transaction_tid\":\"{holder}\",\"transaction_absent\":true}}");
    for id in ["one", "two"] {
        w.memory.overwrite(&p.items.key(id), &placeholder).await;
    }
    set(&p, &["one", "d0000"]).await.expect("there is no document");
    let report = p.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1, "{report:?}");
    assert!(w.memory.stored(&p.items.key("two")).await.is_none());
    assert!(w.memory.stored(&p.items.key("one")).await.is_some());
}

/// The owner is dead. The committed record names two of the three documents with its lock.
#[tokio::test(start_paused = true)]
async fn lock_that_its_record_does_not_name_is_void() {
    cov_mark::check!(lock_that_no_record_names);
    for janitor in [false, true] {
        let w = SharedStore::of(3).await;
        let holder = w.left_by_the_dead(2, Dies::AfterCommit, false).await;
        let p = w.process(Dies::Never).await;
        let orphan = p.items.key("d0002");
        locked_copy(&w, &orphan, &orphan, holder).await;
        assert_eq!(p.values(3).await, [Some(2), Some(2), Some(1)], "readers");
        if !janitor {
            set(&p, &["d0000", "d0001", "d0002"]).await.expect("commits");
        }
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{report:?}");
        let expected = if janitor { [Some(2), Some(2), Some(1)] } else { [Some(7); 3] };
        assert_eq!(p.values(3).await, expected);
        assert!(p.log.damaged().is_empty(), "{:?}", p.log);
        assert!(w.memory.is_in_state(holder, State::Finished).await);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_and_single_writes_remove_an_orphan_lock() {
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    let holder = finished(&p).await;
    let copy = p.items.key("copy");
    locked_copy(&w, &p.items.key("d0000"), &copy, holder).await;
    let snapshot = p.domain.reader().read(&p.items, "copy").await.expect("reads");
    let set = p.domain.compare_and_set(&p.items, &snapshot, &Item { n: 2 }).await;
    let written = matches!(set, Ok(txn_core::CompareAndSet::Written(_)));
    assert!(written, "no transaction holds the lock: {set:?}");
    assert!(!w.memory.stored(&copy).await.expect("kept").1.contains("transaction_tid"));
    locked_copy(&w, &copy, &copy, holder).await;
    let read = async |tx: &txn_core::Transaction| tx.get(&p.items, "copy").await;
    let options = Options::default().with_read_only(true);
    let read = p.domain.run::<_, txn_core::Error, _>(&options, read).await.expect("reads");
    assert_eq!(read.value, Some(Item { n: 2 }));
    assert!(!w.memory.stored(&copy).await.expect("kept").1.contains("transaction_tid"));
    let unlocked = p.log.of(|event| match event {
        Event::Unlocked { document, .. } => Some(document.clone()),
        _ => None,
    });
    assert_eq!(unlocked, [copy], "the writer replaced the first lock by its own");
}

async fn set(p: &Process, ids: &[&str]) -> Result<(), txn_core::Error> {
    let write = async |tx: &txn_core::Transaction| {
        tx.get_many(&p.items, ids.iter().copied()).await?;
        for id in ids {
            tx.put(&p.items, *id, &Item { n: 7 })?;
        }
        Ok(())
    };
    let options = Options::default().with_wait_for(txn_core::WaitFor::Apply);
    p.domain.run::<_, txn_core::Error, _>(&options, write).await.map(|_| ())
}
