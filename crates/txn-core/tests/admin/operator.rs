//! The operator's calls: open transactions, locks, the story of a document, aborts.

use std::sync::Arc;
use std::time::Duration;

use crate::support::script::close_at_commit;
use crate::support::{Log, Looks, Plain, Setup, World, recorded};
use txn_core::admin::{LockStanding, ParticipantState, TransactionState, Verdict};
use txn_core::event::Event;
use txn_core::store::{Key, Store as _};
use txn_core::{AttemptId, Config, Domain, ErrorKind, Raw};
use txn_sim::Closed;

/// A body that no answer may repeat.
fn canary() -> Raw {
    Raw::new(r#"{"text":"canary"}"#)
}

fn config() -> Config {
    crate::support::config()
        .with_process_name("till-7".to_owned())
        .with_application_name(Some("shop".to_owned()))
}

/// Opens a domain with a document `a` in each of two collections.
async fn world() -> World<Raw> {
    let setup = Setup::default().config(config()).collections(&["left", "right"]);
    let w = setup.open().await;
    for items in [&w.items, &w.others[0]] {
        w.put(items, &["a"], &canary()).await.expect("writes");
    }
    w
}

/// Commits a write of both documents without the apply of `left`. The process dies before this
/// apply.
async fn die_after_commit(w: &World<Raw>) -> AttemptId {
    let tx = w.domain.begin(&recorded()).expect("begins");
    let tid = tx.tid().expect("has its own record");
    for items in [&w.items, &w.others[0]] {
        tx.get(items, "a").await.expect("reads");
        tx.put(items, "a", &canary()).expect("buffers");
    }
    close_at_commit(&w.store, "left");
    tx.commit().await.expect("commits");
    w.domain.shutdown(Duration::from_secs(60)).await;
    w.store.reopen("left");
    tid
}

/// Leaves a lock as of a process that died before the commit.
async fn leave_lock(w: &World<Raw>) -> AttemptId {
    w.leave_lock(&w.items.key("a")).await
}

#[tokio::test(start_paused = true)]
async fn unapplied_commit_is_listed_with_its_owner() {
    let w = world().await;
    let tid = die_after_commit(&w).await;
    let domain = w.process(config()).await;
    let open = domain.admin().transactions(10).await.expect("lists");
    assert!(!open.truncated && open.faults.is_empty(), "{open:?}");
    let [one] = &open.transactions[..] else { panic!("{open:?}") };
    assert_eq!((one.tid, one.state, one.participants), (tid, TransactionState::Committed, 2));
    assert_eq!((&*one.process, one.application.as_deref()), ("till-7", Some("shop")));

    let report = domain.admin().transaction(tid, 10).await.expect("reports");
    assert_eq!(report.verdict, Verdict::Unapplied, "{report:?}");
    let states: Vec<_> = report.participants.iter().map(|one| one.state).collect();
    assert_eq!(states, [ParticipantState::Locked, ParticipantState::Applied]);
    assert_eq!(report.locks.len(), 1, "{report:?}");
    assert!(report.record.as_ref().is_some_and(|record| record.commit_version.is_some()));
    let short = domain.admin().transaction(tid, 1).await.expect("reports");
    assert!(short.truncated && short.participants.len() == 1, "{short:?}");

    let locks = domain.admin().locks(10).await.expect("lists");
    let [lock] = &locks.locks[..] else { panic!("{locks:?}") };
    assert_eq!((lock.holder, lock.standing), (tid, LockStanding::Unapplied));
    assert_eq!(lock.process.as_deref(), Some("till-7"));

    for text in [
        serde_json::to_string(&open).expect("JSON"),
        serde_json::to_string(&report).expect("JSON"),
        serde_json::to_string(&locks).expect("JSON"),
    ] {
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn document_report_names_lock_and_commits() {
    let w = world().await;
    let tid = die_after_commit(&w).await;
    let domain = w.process(config()).await;
    let report = domain.admin().document("left", "a", None).await.expect("reports");
    assert!(report.exists && report.commit.is_some(), "{report:?}");
    let lock = report.lock.expect("a lock");
    assert_eq!((lock.holder, lock.state), (tid, TransactionState::Committed));
    let report = domain.admin().document("right", "a", None).await.expect("reports");
    assert!(report.lock.is_none() && !report.earlier.is_empty(), "{report:?}");
    let report = domain.admin().document("right", "b", None).await.expect("reports");
    assert!(!report.exists && report.commit.is_none(), "{report:?}");
    let error = domain.admin().document("nowhere", "a", None).await.expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn committed_transaction_is_not_aborted_by_hand() {
    let w = world().await;
    let tid = die_after_commit(&w).await;
    let domain = w.process(config()).await;
    for dry_run in [true, false] {
        let report = domain.admin().abort(tid, "by hand", dry_run).await.expect("answers");
        assert!(!report.aborts, "{report:?}");
        assert_eq!(report.after, TransactionState::Committed);
    }
}

#[tokio::test(start_paused = true)]
async fn abort_by_hand_voids_the_lock() {
    let w = world().await;
    let tid = leave_lock(&w).await;
    let domain = w.process(config()).await;
    let dry = domain.admin().abort(tid, "by hand", true).await.expect("answers");
    assert!(dry.aborts && dry.after == TransactionState::NoRecord, "{dry:?}");
    let locks = domain.admin().locks(10).await.expect("lists");
    assert_eq!(locks.locks[0].standing, LockStanding::Undecided, "{locks:?}");
    let log = Arc::new(Log::default());
    let config = config().with_observer(Some(log.clone()));
    let domain = Domain::open(w.store.clone(), "shop", config).await.expect("opens");
    let report = domain.admin().abort(tid, "by hand", false).await.expect("answers");
    assert!(report.aborts && report.after == TransactionState::Aborted, "{report:?}");
    let events = log.of(|event| Some(event.clone()));
    assert_eq!(events, [Event::AbortedByOperator { tid, recorded: false }]);
    let locks = domain.admin().locks(10).await.expect("lists");
    assert_eq!(locks.locks[0].standing, LockStanding::Void, "{locks:?}");
    let report = domain.admin().transaction(tid, 10).await.expect("reports");
    assert_eq!(report.verdict, Verdict::Aborted);
    assert!(report.why.contains("by hand"), "{}", report.why);
    let again = domain.admin().abort(tid, "by hand", false).await.expect("answers");
    assert!(!again.aborts, "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn unreadable_collection_is_a_fault_of_the_list() {
    let w = world().await;
    leave_lock(&w).await;
    w.store.close("right", Closed::Entirely);
    let locks = w.domain.admin().locks(10).await.expect("lists");
    assert_eq!(locks.locks.len(), 1, "{locks:?}");
    assert!(!locks.faults[0].damaged && locks.faults[0].subject == "right", "{locks:?}");
    let overview = w.domain.admin().overview().await.expect("tells");
    assert_eq!(overview.collections, ["left", "right"]);
    assert_eq!(overview.partitions.len(), 2, "today and tomorrow");
    let key = Key::new("left", "a");
    assert!(w.memory.text(&key).await.contains("canary"), "nothing was changed");
}

#[tokio::test(start_paused = true)]
async fn lost_partition_is_reported_without_a_scan() {
    let w = world().await;
    assert_eq!(w.domain.admin().lost_parts(10).await.expect("looks"), []);
    w.domain.admin().prepare_days().await.expect("they exist");
    let overview = w.domain.admin().overview().await.expect("tells");
    let lost = overview.partitions[1].name.clone();
    w.store.drop_collection(&lost).await.expect("drops");
    let looks = Looks::at(&w.store);
    let faults = w.domain.admin().lost_parts(10).await.expect("looks");
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert!(fault.damaged && fault.subject.starts_with(&lost), "{fault:?}");
    assert!(!looks.take().1.contains(&"left".to_owned()), "no documents were scanned");
}
