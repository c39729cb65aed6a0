//! Ends of attempts: at a timeout or at a shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use txn_core::store::{Outcome, Refusal, RefusalKind, Write, WriteOp};
use txn_core::{Error, ErrorKind, LockMode, Options, TransactionOutcome, WaitFor};
use txn_sim::{Call, Fate, Step};

use crate::support::script::{is_commit, is_lock, writes};
use crate::support::{Item, Shop};

fn pessimistic() -> Options {
    Options::default().with_lock_mode(LockMode::AtRead)
}

#[tokio::test(start_paused = true)]
async fn hanging_attempt_releases_locks_at_its_timeout() {
    let shop = Shop::open(&["a"]).await;
    let tx = shop.domain.begin(&pessimistic()).expect("begins");
    tx.get(&shop.items, "a").await.expect("reads");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let report = shop.other.admin().inspect().await.expect("inspects");
    assert!(report.is_clean(), "{report:?}");
    shop.set(&shop.other, &["a"], 2).await.expect("the document is free");
    // The next call of the owner fails, of whichever method.
    let error = tx.get(&shop.items, "b").await.expect_err("the attempt is over");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = tx.commit().await.expect_err("the attempt is over");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(shop.value("a").await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn closure_runs_again_after_attempt_timeout() {
    let shop = Shop::open(&["a"]).await;
    let items = &shop.items;
    let runs = AtomicUsize::new(0);
    let options = pessimistic();
    let committed = shop.domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(items, "a").await?;
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_secs(12)).await;
        }
        tx.put(items, "a", &Item { n: 2 })
    });
    assert_eq!(committed.await.expect("commits").receipt.attempts, 2);
    shop.drained().await;
}

/// Runs a transaction whose matching write never returns.
///
/// Checks the kind of the error and the time of the timeout.
async fn hang(which: fn(&Write) -> bool, kind: ErrorKind) -> (Shop, Error) {
    let shop = Shop::open(&["a", "b"]).await;
    shop.store.play(move |write| if which(write) { Fate::Hang } else { Fate::Pass });
    let items = &shop.items;
    let options = Options::default().with_timeout(Some(Duration::from_secs(3)));
    let begun = Instant::now();
    let run = shop.domain.run::<(), Error, _>(&options, async |tx| {
        tx.get_many(items, ["a", "b"]).await?;
        tx.put(items, "a", &Item { n: 2 })?;
        tx.put(items, "b", &Item { n: 2 })
    });
    let error = run.await.expect_err("the store hangs");
    assert_eq!(error.kind(), kind, "{error}");
    // The clock is virtual, so a slow machine does not fail this check.
    assert!(begun.elapsed() < Duration::from_millis(3_200), "{:?}", begun.elapsed());
    (shop, error)
}

#[tokio::test(start_paused = true)]
async fn hanging_lock_is_unavailable_at_the_timeout() {
    let (shop, _) = hang(is_lock, ErrorKind::Unavailable).await;
    shop.other.admin().janitor_pass().await.expect("passes");
    shop.drained().await;
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(1), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn hanging_commit_is_unknown_at_the_timeout() {
    let (shop, error) = hang(is_commit, ErrorKind::Unknown).await;
    let tid = error.tid().expect("a record");
    let outcome = shop.other.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "{outcome:?}");
    shop.other.admin().janitor_pass().await.expect("passes");
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(2), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn hanging_single_write_is_unknown_at_the_timeout() {
    let shop = Shop::open(&["a"]).await;
    shop.store.play(|write| if writes(write, "\"n\":2") { Fate::Hang } else { Fate::Pass });
    let error = shop.set(&shop.domain, &["a"], 2).await.expect_err("the store hangs");
    assert_eq!((error.kind(), error.tid()), (ErrorKind::Unknown, None), "{error}");
    assert_eq!(shop.value("a").await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn conflict_names_the_document_and_its_holder() {
    let shop = Shop::open(&["a"]).await;
    let options = pessimistic().with_own_record(true).with_timeout(Some(Duration::from_secs(60)));
    let holder = shop.other.begin(&options).expect("begins");
    let tid = holder.tid().expect("has its own record");
    holder.get(&shop.items, "a").await.expect("reads");
    let items = &shop.items;
    let options = Options::default().with_timeout(Some(Duration::from_secs(5)));
    let begun = Instant::now();
    let run = shop.domain.run::<(), Error, _>(&options, async |tx| {
        tx.get(items, "a").await?;
        tx.put(items, "a", &Item { n: 2 })
    });
    let error = run.await.expect_err("an older transaction holds the lock");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.document(), Some(&items.key("a")));
    assert!(error.to_string().contains(&tid.to_string()), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(5_200), "{:?}", begun.elapsed());
    holder.rollback().await;
}

#[tokio::test(start_paused = true)]
async fn repeated_lock_conflict_names_the_document() {
    let shop = Shop::open(&["a", "b"]).await;
    // Every lock on `a` conflicts.
    shop.store.play(|write| match is_lock(write) && &*write.key.id == "a" {
        true => Fate::RefuseWith(Outcome::Conflict),
        false => Fate::Pass,
    });
    let error = shop.set(&shop.domain, &["a", "b"], 2).await.expect_err("every lock conflicts");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.document(), Some(&shop.items.key("a")), "{error}");
    shop.drained().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_later_attempts_finish() {
    let shop = Shop::open(&["a", "b"]).await;
    let (domain, items) = (shop.domain.clone(), shop.items.clone());
    let running = tokio::spawn(async move {
        let options = pessimistic();
        let started = AtomicBool::new(true);
        domain
            .run::<_, Error, _>(&options, async |tx| {
                tx.get(&items, "a").await?;
                // The first attempt exceeds its timeout, and a second attempt follows.
                let dawdles = started.swap(false, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(if dawdles { 12 } else { 1 })).await;
                tx.get(&items, "b").await?;
                tx.put(&items, "a", &Item { n: 2 })?;
                tx.put(&items, "b", &Item { n: 2 })
            })
            .await
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(shop.domain.shutdown(Duration::from_secs(60)).await, "everything is applied");
    running.await.expect("no panic").expect("the transaction finishes");
    assert!(shop.other.admin().inspect().await.expect("inspects").is_clean());
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(2), Some(2)));
    let refused = shop.set(&shop.domain, &["a"], 3).await.expect_err("the domain is shut down");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
}

/// The store hangs after the commit. At the timeout the caller still receives the commit.
#[tokio::test(start_paused = true)]
async fn hanging_apply_or_refresh_ends_at_the_timeout() {
    for (ids, refresh, acknowledge) in [
        (&["a", "b"][..], Fate::Pass, WaitFor::Apply),
        (&["a", "b"][..], Fate::Hang, WaitFor::Refresh),
        (&["a"][..], Fate::Hang, WaitFor::Refresh),
        (&["a"][..], Fate::Panic, WaitFor::Refresh),
    ] {
        let shop = Shop::open(&["a", "b"]).await;
        let committed = AtomicBool::new(false);
        let hangs = acknowledge == WaitFor::Apply;
        shop.store.play(move |write| {
            if is_commit(write) {
                committed.store(true, Ordering::SeqCst);
                return Fate::Pass;
            }
            if hangs && committed.load(Ordering::SeqCst) { Fate::Hang } else { Fate::Pass }
        });
        shop.store.before(move |call| match (call, &refresh) {
            (Call::Refresh(_), Fate::Hang) => Step::wait(std::future::pending()),
            (Call::Refresh(_), Fate::Panic) => panic!("the store panics"),
            _ => Step::pass(),
        });
        let items = &shop.items;
        let options = Options::default()
            .with_timeout(Some(Duration::from_secs(2)))
            .with_wait_for(acknowledge);
        let begun = Instant::now();
        let run = shop.domain.run::<(), Error, _>(&options, async |tx| {
            tx.get_many(items, ids.iter().copied()).await?;
            ids.iter().try_for_each(|id| tx.put(items, *id, &Item { n: 2 }))
        });
        let receipt = run.await.expect("committed").receipt;
        assert!(!receipt.applied && receipt.commit_version.is_some(), "{receipt:?}");
        assert!(begun.elapsed() < Duration::from_millis(2_200), "{:?}", begun.elapsed());
        assert_eq!(shop.value("a").await, Some(2));
    }
}

/// A lagging node denies the alias again and again. The engine retries with pauses until the
/// timeout.
#[tokio::test(start_paused = true)]
async fn missing_partition_is_retried_with_pauses() {
    let shop = Shop::open(&["a", "b"]).await;
    let asked: Arc<AtomicUsize> = Arc::default();
    let count = asked.clone();
    shop.store.play(move |write| match write.require_alias {
        true => {
            count.fetch_add(1, Ordering::SeqCst);
            Fate::RefuseWith(Outcome::MissingCollection)
        }
        false => Fate::Pass,
    });
    let error = shop.set(&shop.domain, &["a", "b"], 2).await.expect_err("no partition");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(asked.load(Ordering::SeqCst) < 1_000, "{asked:?}");
}

/// An aborted record takes less than 400 bytes on disk.
#[tokio::test(start_paused = true)]
async fn an_aborted_record_carries_no_contents() {
    let shop = Shop::open(&["a", "b"]).await;
    let records: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
    let seen = records.clone();
    shop.store.play(move |write| {
        if let (true, WriteOp::Create(source) | WriteOp::Replace(source, _)) =
            (write.require_alias, &write.op)
        {
            seen.lock().push(source.to_string());
        }
        Fate::Pass
    });
    let tx = shop.domain.begin(&pessimistic()).expect("begins");
    tx.get_many(&shop.items, ["a", "b"]).await.expect("reads");
    // No id and no time in a record has this many digits.
    let content = i64::MAX;
    tx.put(&shop.items, "a", &Item { n: content }).expect("buffers");
    tokio::time::sleep(Duration::from_secs(2)).await;
    tx.rollback().await;
    let records = records.lock();
    let aborted = records.last().expect("a heartbeat wrote a record");
    assert!(aborted.contains("\"state\":\"aborted\""), "{aborted}");
    assert!(!aborted.contains(&content.to_string()), "{aborted}");
    assert!(aborted.len() < 400, "{} bytes: {aborted}", aborted.len());
}

#[tokio::test(start_paused = true)]
async fn record_above_a_size_limit_is_invalid() {
    let shop = Shop::open(&["a", "b"]).await;
    let reason = "the server refuses a request of 400000 bytes".to_owned();
    let refusal = Outcome::Invalid(Refusal { kind: RefusalKind::TooLarge, reason });
    shop.store.play(move |write| match is_commit(write) {
        true => Fate::RefuseWith(refusal.clone()),
        false => Fate::Pass,
    });
    let error = shop.set(&shop.domain, &["a", "b"], 2).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    for words in ["the transaction is too large", "400000 bytes"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    shop.drained().await;
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(1), Some(1)));
}
