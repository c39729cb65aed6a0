//! The life cycle of transactions, in virtual time.
//!
//! Heartbeats, wounds, recovery, outcomes, and the partitions of the transaction table.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Item, Plain, Setup, Wall, World, config, drained, fresh_tid, recorded};
use txn_core::event::Event;
use txn_core::store::fields::TRANSACTION_TID;
use txn_core::store::{Filter, Key, MemoryStore, Store};
use txn_core::{
    AttemptId, CompareAndSet, Config, Domain, Error, ErrorKind, LockMode, Options, Raw, ReadMode,
    TransactionOutcome, record::State,
};
use txn_sim::{FaultPlan, FaultStore};

/// Opens another process on the same store, with the same log.
async fn beside(w: &World) -> Domain {
    w.process(config().with_observer(Some(w.log.clone()))).await
}

async fn world() -> World {
    World::of(&["a", "b"]).await
}

/// Reads and writes a document in one attempt.
async fn set(w: &World, domain: &Domain, id: &str, n: i64, options: &Options) -> Result<(), Error> {
    let tx = domain.begin(options)?;
    tx.get(&w.items, id).await?;
    tx.put(&w.items, id, &Item { n })?;
    tx.commit().await.map(drop)
}

/// Leaves a dead process's lock, and a record in this state.
async fn leave_lock(w: &World, id: &str, record: Option<State>) -> AttemptId {
    let tid = w.leave_lock(&w.items.key(id)).await;
    if let Some(state) = record {
        w.memory.create_record(tid, state, "").await;
    }
    tid
}

#[tokio::test(start_paused = true)]
async fn a_long_transaction_is_kept_alive_by_its_heartbeat() {
    let w = world().await;
    // Another process knows only what the store holds.
    let other = beside(&w).await;
    let options = recorded().with_lock_mode(LockMode::AtRead);
    let tx = w.domain.begin(&options).expect("begins");
    let tid = tx.tid().expect("has its own record");
    assert_eq!(tx.get(&w.items, "a").await.expect("reads"), Some(Item { n: 1 }));
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let rival = set(&w, &other, "a", 7, &pessimistic);
    let slow = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        tx.put(&w.items, "a", &Item { n: 5 }).expect("buffers");
        tx.commit().await
    };
    let (rival, slow) = tokio::join!(rival, slow);
    slow.expect("the older transaction commits after five leases");
    rival.expect("the younger transaction waits");
    assert_eq!(w.value("a").await, Some(7));
    assert_eq!(
        w.log.count(|e| matches!(e, Event::AbortedByRecovery { tid: dead, .. } if *dead == tid)),
        0
    );
    w.drained().await;
}

#[tokio::test(start_paused = true)]
async fn an_older_transaction_wounds_a_younger_one() {
    cov_mark::check!(wound_seen_at_commit);
    let w = world().await;
    let other = beside(&w).await;
    let options = recorded().with_lock_mode(LockMode::AtRead);
    let old = w.domain.begin(&options).expect("begins");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let young = other.begin(&options).expect("begins");
    let (elder, victim) = (old.tid().expect("has one"), young.tid().expect("has one"));
    young.get(&w.items, "a").await.expect("locks");
    old.get(&w.items, "a").await.expect("takes the lock");
    old.put(&w.items, "a", &Item { n: 2 }).expect("buffers");
    young.put(&w.items, "a", &Item { n: 3 }).expect("buffers");
    let error = young.commit().await.expect_err("wounded");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    old.commit().await.expect("commits");
    assert_eq!(w.value("a").await, Some(2));
    let wounds = |e: &Event| matches!(e, Event::Wounded { by, victim: v, .. } if (*by, *v) == (elder, victim));
    assert_eq!(w.log.count(wounds), 1);
    assert_eq!(w.domain.outcome(victim).await.expect("known"), TransactionOutcome::Aborted);
    w.drained().await;
}

#[tokio::test(start_paused = true)]
async fn application_error_of_stale_reads_is_not_returned() {
    let w = world().await;
    // The older transaction runs in another process, so no local signal reports the wound.
    let other = beside(&w).await;
    let old = other.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let young = w.domain.run::<_, Error, _>(&options, async |tx| {
        let a = tx.get(&w.items, "a").await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let b = tx.get(&w.items, "b").await?;
        if a == b {
            return Ok(a);
        }
        // An error of the application stands for any other. An empty id is invalid.
        tx.get(&w.items, "").await
    });
    let old = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        for id in ["a", "b"] {
            old.put(&w.items, id, &Item { n: 2 }).expect("buffers");
        }
        old.commit().await.expect("wounds and commits");
    };
    let (young, ()) = tokio::join!(young, old);
    assert_eq!(young.expect("runs again").value, Some(Item { n: 2 }));
    w.drained().await;
}

#[tokio::test(start_paused = true)]
async fn writer_removes_the_lock_of_a_dead_owner() {
    for record in [None, Some(State::Pending), Some(State::Aborted)] {
        let w = world().await;
        let dead = leave_lock(&w, "a", record).await;
        assert_eq!(w.value("a").await, Some(1), "readers see the committed content: {record:?}");
        set(&w, &w.domain, "a", 2, &Options::default())
            .await
            .expect("waits for one lease, then goes on");
        assert_eq!(w.value("a").await, Some(2));
        assert_eq!(w.domain.outcome(dead).await.expect("known"), TransactionOutcome::Aborted);
        w.drained().await;
    }
}

#[tokio::test(start_paused = true)]
async fn janitor_recovers_abandoned_locks_and_records() {
    let w = world().await;
    leave_lock(&w, "a", None).await;
    leave_lock(&w, "b", Some(State::Pending)).await;
    let before = w.domain.admin().inspect().await.expect("inspects");
    assert_eq!((before.locked.len(), before.open.len()), (2, 1), "{before:?}");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered >= 2, "{report:?}");
    assert_eq!((w.value("a").await, w.value("b").await), (Some(1), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn forged_lock_is_reported_and_not_removed() {
    let w = world().await;
    let key = w.items.key("a");
    w.memory.overwrite(&key, &format!("{{\"{TRANSACTION_TID}\":\"mine!\",\"n\":1}}")).await;
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    assert_eq!(report.damaged[0].0, key);
    let error = set(&w, &w.domain, "a", 2, &Options::default()).await.expect_err("damaged");
    assert_eq!((error.kind(), error.document()), (ErrorKind::Damaged, Some(&key)));
}

#[tokio::test(start_paused = true)]
async fn plain_write_under_a_lock_is_reported_as_damaged() {
    let w = world().await;
    let tx = w.domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(&w.items, "a").await.expect("locks");
    let key = w.items.key("a");
    let source = w.memory.text(&key).await;
    assert!(source.contains(TRANSACTION_TID));
    w.memory.overwrite(&key, &source.replace("\"n\":1", "\"n\":99")).await;
    tx.put(&w.items, "a", &Item { n: 2 }).expect("buffers");
    tx.commit().await.expect("the lock is still held");
    w.drained().await;
    assert_eq!(w.value("a").await, Some(2));
    let told = |e: &Event| matches!(e, Event::Damaged { document, .. } if *document == key);
    assert_eq!(w.log.count(told), 1);
}

#[tokio::test(start_paused = true)]
async fn placeholder_with_foreign_content_is_not_deleted() {
    cov_mark::check!(placeholder_was_filled);
    let w = world().await;
    let tid = fresh_tid(&w.domain);
    let key = w.items.key("c");
    let text = format!("{{\"{TRANSACTION_TID}\":\"{tid}\",\"transaction_absent\":true,\"n\":5}}");
    w.memory.create(key.clone(), &text).await;
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.damaged.iter().map(|(k, _)| k).collect::<Vec<_>>(), [&key], "{report:?}");
    assert_eq!(report.recovered, 0, "{report:?}");
    let error = set(&w, &w.domain, "c", 1, &Options::default()).await.expect_err("damaged");
    assert_eq!((error.kind(), error.document()), (ErrorKind::Damaged, Some(&key)), "{error}");
    assert!(w.memory.stored(&key).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn commit_paths_have_exact_costs() {
    let w = world().await;
    let cost = async |before| {
        w.drained().await;
        w.counting.counts().since(before)
    };
    let before = w.counting.counts();
    set(&w, &w.domain, "a", 2, &Options::default()).await.expect("writes");
    let counts = w.counting.counts().since(before);
    assert_eq!((counts.requests(), counts.documents_written), (2, 1), "one document: {counts}");
    let before = w.counting.counts();
    w.domain
        .transact::<_, Error, _>(async |tx| {
            tx.get_many(&w.items, ["a", "b"]).await?;
            tx.put(&w.items, "a", &Item { n: 3 })?;
            tx.put(&w.items, "b", &Item { n: 3 })
        })
        .await
        .expect("writes");
    let counts = w.counting.counts().since(before);
    assert!(counts.requests() >= 3, "{counts}");
    assert_eq!(cost(before).await.documents_written, 6, "2N + 2");
    let before = w.counting.counts();
    let read = w
        .domain
        .transact::<_, Error, _>(async |tx| tx.get_many(&w.items, ["a", "b", "c"]).await)
        .await
        .expect("reads");
    assert_eq!(read, [Some(Item { n: 3 }), Some(Item { n: 3 }), None]);
    let counts = w.counting.counts().since(before);
    assert_eq!(
        (counts.requests(), counts.documents_written),
        (3, 0),
        "one absence, alone: {counts}"
    );
}

#[tokio::test(start_paused = true)]
async fn limits_are_errors_before_the_first_lock() {
    let w = world().await;
    let long = "x".repeat(513);
    let big = "y".repeat(51 << 20);
    let too_many = Config::default().with_max_documents(1).with_janitor_interval(None);
    let small = Domain::open_or_create(w.store.clone(), "shop", too_many).await.expect("opens");
    for (domain, id, text) in
        [(&w.domain, &*long, "x"), (&w.domain, "c", &*big), (&small, "c", "x")]
    {
        let raw = domain.collection::<Raw>("items").await.expect("opens");
        let error = domain
            .transact::<_, Error, _>(async |tx| {
                tx.put(&w.items, "a", &Item { n: 9 })?;
                tx.put(&raw, id, &txn_core::Raw::new(format!("{{\"t\":\"{text}\"}}")))
            })
            .await
            .expect_err("over a limit");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let twice = w.domain.collection::<Raw>("items").await.expect("opens");
    for text in ["{\"a\":1,\"a\":2}", "[]", "{\"transaction_version\":\"x\"}", "{"] {
        let tx = w.domain.begin(&Options::default()).expect("begins");
        let error = tx.put(&twice, "c", &txn_core::Raw::new(text)).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let locked =
        w.store.scan("items", &Filter::Exists(TRANSACTION_TID), 10, None).await.expect("scans");
    assert!(locked.documents.is_empty());
    assert_eq!(w.value("a").await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn compare_and_set_writes_or_mismatches() {
    let w = world().await;
    let reader = w.domain.reader();
    let first = reader.read(&w.items, "a").await.expect("reads");
    let written = w.domain.compare_and_set(&w.items, &first, &Item { n: 2 }).await.expect("writes");
    assert!(matches!(written, CompareAndSet::Written(_)));
    let again = w.domain.compare_and_set(&w.items, &first, &Item { n: 3 }).await.expect("answers");
    assert_eq!(again, CompareAndSet::Mismatch);
    assert_eq!(w.value("a").await, Some(2));
    leave_lock(&w, "a", None).await;
    loop {
        let seen = reader.read(&w.items, "a").await.expect("reads");
        match w.domain.compare_and_set(&w.items, &seen, &Item { n: 4 }).await.expect("answers") {
            CompareAndSet::Written(_) => break,
            CompareAndSet::Mismatch => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    assert_eq!(w.value("a").await, Some(4), "the dead holder was recovered");
}

#[tokio::test(start_paused = true)]
async fn read_modes_lock_or_refuse_as_they_say() {
    let w = world().await;
    let options = Options::default().with_read_mode(ReadMode::Lock);
    let locked = || w.log.count(|event| matches!(event, Event::Locked { .. }));
    let before = locked();
    let read = w
        .domain
        .run::<_, Error, _>(&options, async |tx| tx.get_many(&w.items, ["a", "none"]).await)
        .await
        .expect("reads");
    assert_eq!(read.value, [Some(Item { n: 1 }), None]);
    assert_eq!((read.receipt.tid, read.receipt.commit_version), (None, None));
    assert!(locked() > before);
    w.drained().await;
    let options = Options::default().with_read_only(true);
    let refused = w
        .domain
        .run::<_, Error, _>(&options, async |tx| tx.put(&w.items, "a", &Item { n: 1 }))
        .await;
    assert_eq!(refused.expect_err("read-only").kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn a_collection_belongs_to_one_domain() {
    let w = world().await;
    let other =
        Domain::open_or_create(w.store.clone(), "other", Config::default()).await.expect("opens");
    let error = other.collection::<Raw>("items").await.expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("shop"), "{error}");
    let missing = w.domain.collection::<Raw>("nowhere").await.expect_err("missing");
    assert_eq!(missing.kind(), ErrorKind::Misconfigured);
    for name in ["", "Bank", "a b", "-a", &"a".repeat(65)] {
        let error =
            Domain::open_or_create(w.store.clone(), name, Config::default()).await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(start_paused = true)]
async fn old_days_are_dropped_and_never_come_back() {
    let w = world().await;
    let dead = leave_lock(&w, "a", Some(State::Pending)).await;
    let wall = Wall::ahead(Duration::ZERO);
    let config = Config::default().with_janitor_interval(None).with_clock(wall.clone());
    let late =
        Domain::open_or_create(w.store.clone(), "shop", config.clone()).await.expect("opens");
    let report = late.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.partitions_dropped, 0);
    let day = 24 * 3600;
    wall.set_ahead(Duration::from_secs(9 * day));
    let report = late.admin().janitor_pass().await.expect("passes");
    // The pass created later partitions. Both clocks have partitions for today and tomorrow.
    assert!(report.partitions_dropped >= 1 && report.is_clean(), "{report:?}");
    assert_eq!(late.outcome(dead).await.expect("answers"), TransactionOutcome::Forgotten);
    // The day of a process with a slow clock is dropped for good.
    let slow = Domain::open_or_create(
        w.store.clone(),
        "shop",
        Config::default().with_janitor_interval(None),
    )
    .await;
    match slow {
        Ok(slow) => {
            let error = slow
                .transact::<_, Error, _>(async |tx| {
                    tx.get_many(&w.items, ["a", "b"]).await?;
                    tx.put(&w.items, "a", &Item { n: 2 })?;
                    tx.put(&w.items, "b", &Item { n: 2 })
                })
                .await
                .expect_err("the records cannot be written");
            assert!(!matches!(error.kind(), ErrorKind::Unknown), "{error}");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}"),
    }
    assert_eq!(late.reader().get(&w.items, "a").await.expect("reads"), Some(Item { n: 1 }));
    let report = late.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

/// A deadlock of attempts that roll forward while they hold locks.
///
/// Such an attempt must not wait for a younger holder that waits for the attempt. A load test on
/// few accounts found this deadlock: all transactions were blocked until the attempt timeout.
#[tokio::test(start_paused = true)]
async fn roll_forward_never_deadlocks() {
    cov_mark::check!(wound_seen_while_waiting);
    for seed in 0..20 {
        let slow = FaultPlan::none(seed).with_delay(0.9, Duration::from_millis(5));
        let memory = Arc::new(MemoryStore::new());
        let store = Arc::new(FaultStore::new(memory.clone(), slow));
        let World { log, domain, items, .. }: World = Setup::on(memory).below(store).open().await;
        let tasks: Vec<_> = (0..6_u64)
            .map(|task| {
                let (domain, items) = (domain.clone(), items.clone());
                let mut dice = seed * 31 + task * 7_919 + 1;
                tokio::spawn(async move {
                    for _ in 0..15 {
                        let mut ids = std::collections::BTreeSet::new();
                        while ids.len() < 3 {
                            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            ids.insert(format!("item-{}", (dice >> 33) % 6));
                        }
                        let n = i64::from(dice % 5 > 0);
                        let write = domain.transact::<_, Error, _>(async |tx| {
                            tx.get_many(&items, ids.iter().map(String::as_str)).await?;
                            for id in &ids {
                                match n {
                                    0 => tx.delete(&items, id.as_str())?,
                                    n => tx.put(&items, id.as_str(), &Item { n })?,
                                }
                            }
                            Ok(())
                        });
                        write.await.expect("commits");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let expired =
            |e: &Event| matches!(e, Event::Aborted { why, .. } if why.contains("timeout"));
        assert_eq!(log.count(expired), 0, "seed {seed}");
        drained(&domain).await;
    }
}

/// A janitor that dies while dropping a day leaves the partition blocked.
///
/// Another janitor lifts the block. The lift may take long, so the day is dropped only after the
/// lift must have ended.
#[tokio::test(start_paused = true)]
async fn write_block_of_a_dead_janitor_is_lifted() {
    cov_mark::check!(janitor_lifts_blocks);
    let w = world().await;
    let tid = leave_lock(&w, "a", Some(State::Pending)).await;
    let text = w.memory.text(&Key::new("txn-registry", "domain:shop")).await;
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let partition = document["partitions"][tid.day().to_string()].as_str().expect("a name");
    w.store.block_writes(partition, true).await.expect("blocks");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered > 0, "{report:?}");
    assert_eq!(w.value("a").await, Some(1));
    let wall = Wall::ahead(Duration::ZERO);
    let config = Config::default().with_janitor_interval(None).with_clock(wall.clone());
    let late = Domain::open_or_create(w.store.clone(), "shop", config).await.expect("opens");
    wall.set_ahead(Duration::from_secs(30 * 24 * 3_600));
    for _ in 0..2 {
        let report = late.admin().janitor_pass().await.expect("passes");
        assert_eq!(report.partitions_dropped, 0, "a lift may be under way");
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let report = late.admin().janitor_pass().await.expect("passes");
    assert!(report.partitions_dropped > 0 && report.is_clean(), "{report:?}");
}

/// Two finished transactions have late placeholders on each other's participants.
///
/// The placeholders are of duplicated requests. A process that rolls one transaction forward must
/// release its own locks before resolving the other transaction.
#[tokio::test(start_paused = true)]
async fn crossing_late_placeholders_are_removed() {
    let w = world().await;
    let mut holders = Vec::new();
    for _ in 0..2 {
        let delete = async |tx: &txn_core::Transaction| {
            tx.delete(&w.items, "a")?;
            tx.delete(&w.items, "b")
        };
        w.domain.transact::<_, Error, _>(delete).await.expect("deletes");
        w.drained().await;
        let insert = async |tx: &txn_core::Transaction| {
            tx.insert(&w.items, "a", &Item { n: 2 })?;
            tx.insert(&w.items, "b", &Item { n: 2 })
        };
        let inserted = w.domain.run::<_, Error, _>(&Options::default(), insert).await;
        holders.push(inserted.expect("inserts").receipt.tid.expect("a record"));
        w.drained().await;
    }
    w.domain
        .transact::<_, Error, _>(async |tx| {
            tx.delete(&w.items, "a")?;
            tx.delete(&w.items, "b")
        })
        .await
        .expect("deletes");
    w.drained().await;
    for (id, holder) in ["a", "b"].into_iter().zip(holders) {
        let placeholder =
            format!("{{\"transaction_tid\":\"{holder}\",\"transaction_absent\":true}}");
        w.memory.create(Key::new("items", id), &placeholder).await;
    }
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
    let read = w.domain.reader().get_many(&w.items, ["a", "b"]).await.expect("reads");
    assert_eq!(read, [None, None]);
}

/// A validation takes over the lock of a younger holder.
///
/// If the lock were only removed, the retried younger transaction would lock the document again
/// before the next validation, without end.
#[tokio::test(start_paused = true)]
async fn retrying_younger_does_not_starve_a_validation() {
    let w = world().await;
    let older = w.domain.begin(&Options::default()).expect("begins");
    for id in ["a", "b"] {
        older.get(&w.items, id).await.expect("reads");
    }
    older.put(&w.items, "a", &Item { n: 2 }).expect("buffers");
    let began = tokio::time::Instant::now();
    let younger = tokio::spawn({
        let (domain, items, log) = (w.domain.clone(), w.items.clone(), w.log.clone());
        async move {
            let wounded = || log.count(|event| matches!(event, Event::Wounded { .. })) > 0;
            let options = Options::default().with_lock_mode(LockMode::AtRead);
            let write = domain.run::<_, Error, _>(&options, async |tx| {
                let b = tx.get(&items, "b").await?.expect("exists");
                let a = tx.get(&items, "a").await?.expect("exists");
                // Waits until the older transaction wounds this one.
                while !wounded() {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
                tx.put(&items, "b", &Item { n: b.n + a.n })
            });
            write.await.expect("commits")
        }
    });
    // After 1 ms the younger transaction holds both locks.
    tokio::time::sleep(Duration::from_millis(1)).await;
    older.commit().await.expect("commits");
    assert!(began.elapsed() < Duration::from_secs(1), "took {:?}", began.elapsed());
    let attempts = younger.await.expect("no panic").receipt.attempts;
    assert!(attempts <= 3, "the younger transaction ran {attempts} times");
    assert_eq!((w.value("a").await, w.value("b").await), (Some(2), Some(3)));
    w.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_domain_that_shuts_down_refuses_new_transactions() {
    let w = world().await;
    assert!(w.domain.shutdown(Duration::from_secs(5)).await);
    let error = set(&w, &w.domain, "a", 2, &Options::default()).await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
