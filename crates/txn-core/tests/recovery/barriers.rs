//! Barriers with damaged documents.
//!
//! The report names the damaged documents, and searches see all other commits.

use std::time::Duration;

use txn_core::store::Key;
use txn_core::{AttemptId, BarrierReport, Error, ErrorKind, Options};
use txn_sim::Closed;

use crate::support::{Dies, Item, Items, Plain, Process, SharedStore, record_key};

const WAIT: Duration = Duration::from_secs(29);

/// A dead process whose committed insert of `other/x` a plain client removed.
async fn damaged_insert(w: &SharedStore) -> AttemptId {
    let tid = w.left_by_the_dead(1, Dies::AfterCommit, true).await;
    w.memory.delete(&Key::new("other", "x")).await;
    tid
}

/// A dead process that left two committed writes.
async fn healthy_commit(w: &SharedStore) {
    let dead = w.process(Dies::AfterCommit).await;
    let tx = dead.domain.begin(&Options::default()).expect("begins");
    for id in ["h1", "h2"] {
        tx.insert(&dead.items, id, &Item { n: 5 }).expect("buffers");
    }
    tx.commit().await.expect("commits");
}

async fn assert_healthy_is_searchable(w: &SharedStore, p: &Process) {
    for id in ["h1", "h2"] {
        let (_, source) = w.memory.stored(&p.items.key(id)).await.expect("exists");
        assert!(source.contains("\"n\":5") && !source.contains("transaction_tid"), "{source}");
    }
}

fn documents(report: &BarrierReport) -> Vec<Key> {
    report.unapplied.iter().filter_map(|write| write.error.document().cloned()).collect()
}

#[tokio::test(start_paused = true)]
async fn damaged_document_does_not_fail_the_barrier() {
    let w = SharedStore::of(1).await;
    let tid = damaged_insert(&w).await;
    healthy_commit(&w).await;
    let p = w.process(Dies::Never).await;
    for _ in 0..2 {
        let (report, cost) = p.cost(p.domain.barrier(WAIT)).await;
        let report = report.expect("passes");
        assert_healthy_is_searchable(&w, &p).await;
        assert!(cost.admin >= 3, "the day and both collections are refreshed: {cost:?}");
        assert!(!report.is_complete());
        assert_eq!(documents(&report), [Key::new("other", "x")]);
        let unapplied = &report.unapplied[0];
        assert_eq!(unapplied.record, record_key(tid));
        assert_eq!(
            (unapplied.error.kind(), unapplied.error.tid()),
            (ErrorKind::Damaged, Some(tid))
        );
        assert!(unapplied.commit_version.is_some());
        let error = report.into_result().expect_err("incomplete");
        assert_eq!(error.kind(), ErrorKind::Damaged);
    }
    let other: Items = p.domain.create_collection("other", None).await.expect("opens");
    let insert = p.domain.transact::<_, Error, _>(async |tx| {
        tx.insert(&other, "x", &Item { n: 2 })?;
        tx.get(&p.items, "d0000").await.map(drop)
    });
    insert.await.expect("an operator writes the document again");
    let report = p.domain.barrier(WAIT).await.expect("passes");
    assert!(report.is_complete(), "{report:?}");
    report.into_result().expect("complete");
}

/// Each transaction that finds the damaged document touches the holder's record.
#[tokio::test(start_paused = true)]
async fn record_that_readers_touch_does_not_delay_barrier() {
    let w = SharedStore::of(1).await;
    let tid = damaged_insert(&w).await;
    let p = w.process(Dies::Never).await;
    let record = record_key(tid);
    let touches = async {
        loop {
            let source = w.memory.text(&record).await;
            w.memory.overwrite(&record, &source).await;
            tokio::time::sleep(p.domain.config().lease() / 4).await;
        }
    };
    tokio::select! {
        report = p.domain.barrier(WAIT) => {
            let report = report.expect("passes");
            assert_eq!(documents(&report), [Key::new("other", "x")]);
        }
        () = touches => {}
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_record_does_not_fail_the_barrier() {
    let w = SharedStore::of(1).await;
    let tid = w.left_by_the_dead(1, Dies::AfterCommit, false).await;
    healthy_commit(&w).await;
    let record = record_key(tid);
    w.memory.overwrite(&record, r#"{"state":"committed","what":"is this"}"#).await;
    let foreign = Key::new(record.collection.clone(), "a note");
    w.memory.overwrite(&foreign, r#"{"state":"committed"}"#).await;
    let p = w.process(Dies::Never).await;
    let report = p.domain.barrier(WAIT).await.expect("passes");
    assert_healthy_is_searchable(&w, &p).await;
    let mut found = documents(&report);
    found.iter_mut().for_each(|key| key.collection = record.collection.clone());
    assert_eq!(found, [record, foreign]);
    assert!(report.unapplied.iter().all(|write| write.error.kind() == ErrorKind::Damaged));
    assert!(report.unapplied.iter().all(|write| write.commit_version.is_none()));
    assert_eq!(report.unapplied[0].error.tid(), Some(tid));
    let error = report.into_result().expect_err("incomplete");
    assert!(error.to_string().contains("1 more"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn unavailable_store_fails_the_barrier() {
    let w = SharedStore::of(1).await;
    w.left_by_the_dead(1, Dies::AfterCommit, false).await;
    w.store.close("items", Closed::Documents);
    let p = w.process(Dies::Never).await;
    let error = p.domain.barrier(WAIT).await.expect_err("the documents cannot be written");
    assert!(error.kind().is_transient_or_unknown(), "{error}");
    w.store.reopen("items");
    assert!(p.domain.barrier(WAIT).await.expect("passes").is_complete());
}
