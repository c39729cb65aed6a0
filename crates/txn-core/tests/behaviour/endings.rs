//! How attempts end: at their limit, at the deadline, at a shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use txn_core::store::{Outcome, Refusal, RefusalKind, Write, WriteOp};
use txn_core::{Error, ErrorKind, Options, TransactionOutcome, WaitFor};

use super::support::{Fate, Item, Shop, is_commit, is_lock, writes};

fn pessimistic() -> Options {
    Options::default().with_pessimistic(true)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_gives_its_locks_back_at_its_limit() {
    let shop = Shop::open(&["a"]).await;
    let tx = shop.domain.begin(&pessimistic()).expect("begins");
    tx.get(&shop.items, "a").await.expect("reads");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let report = shop.other.inspect().await.expect("looks");
    assert!(report.is_clean(), "{report:?}");
    shop.set(&shop.other, &["a"], 2).await.expect("the document is free");
    // Its owner finds out, with whatever it does next.
    let error = tx.get(&shop.items, "b").await.expect_err("it is over");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = tx.commit().await.expect_err("it is over");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(shop.value("a").await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_hangs_once_runs_again() {
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

/// A write that hangs for ever at this step is answered for at the deadline, and the documents are free in the end.
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
    let error = run.await.expect_err("it hangs");
    assert_eq!(error.kind(), kind, "{error}");
    // On a virtual clock: no machine is too slow for that.
    assert!(begun.elapsed() < Duration::from_millis(3_200), "{:?}", begun.elapsed());
    (shop, error)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_at_the_lock_does_not_hold_the_caller_beyond_the_deadline() {
    let (shop, _) = hang(is_lock, ErrorKind::Unavailable).await;
    shop.other.janitor_pass().await.expect("passes");
    shop.drained().await;
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(1), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_at_the_commit_is_told_as_unknown_at_the_deadline() {
    let (shop, error) = hang(is_commit, ErrorKind::Unknown).await;
    let tid = error.tid().expect("it has a record");
    let outcome = shop.other.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "{outcome:?}");
    shop.other.janitor_pass().await.expect("passes");
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(2), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_single_write_that_hangs_is_told_as_unknown_at_the_deadline() {
    let shop = Shop::open(&["a"]).await;
    shop.store.play(|write| if writes(write, "\"n\":2") { Fate::Hang } else { Fate::Pass });
    let error = shop.set(&shop.domain, &["a"], 2).await.expect_err("it hangs");
    assert_eq!((error.kind(), error.tid()), (ErrorKind::Unknown, None), "{error}");
    assert_eq!(shop.value("a").await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn contention_is_a_conflict_that_names_the_document_and_its_holder() {
    let shop = Shop::open(&["a"]).await;
    let options = pessimistic().with_timeout(Some(Duration::from_secs(60)));
    let holder = shop.other.begin(&options).expect("begins");
    holder.get(&shop.items, "a").await.expect("reads");
    let items = &shop.items;
    let options = Options::default().with_timeout(Some(Duration::from_secs(5)));
    let begun = Instant::now();
    let run = shop.domain.run::<(), Error, _>(&options, async |tx| {
        tx.get(items, "a").await?;
        tx.put(items, "a", &Item { n: 2 })
    });
    let error = run.await.expect_err("an older one holds it");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.document(), Some(&items.key("a")));
    assert!(error.to_string().contains(&holder.tid().to_string()), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(5_200), "{:?}", begun.elapsed());
    holder.rollback().await;
}

#[tokio::test(start_paused = true)]
async fn a_document_that_others_change_again_and_again_is_a_conflict() {
    let shop = Shop::open(&["a", "b"]).await;
    // Every lock comes too late.
    shop.store.play(|write| match is_lock(write) && &*write.key.id == "a" {
        true => Fate::RefuseWith(Outcome::Conflict),
        false => Fate::Pass,
    });
    let error = shop.set(&shop.domain, &["a", "b"], 2).await.expect_err("it never gets the lock");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.document(), Some(&shop.items.key("a")), "{error}");
    shop.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_what_runs_finish_also_in_further_attempts() {
    let shop = Shop::open(&["a", "b"]).await;
    let (domain, items) = (shop.domain.clone(), shop.items.clone());
    let running = tokio::spawn(async move {
        let options = pessimistic();
        let started = AtomicBool::new(true);
        domain
            .run::<_, Error, _>(&options, async |tx| {
                tx.get(&items, "a").await?;
                // The first attempt comes to its limit, and a second one follows.
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
    running.await.expect("no panic").expect("it was let finish");
    assert!(shop.other.inspect().await.expect("looks").is_clean());
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(2), Some(2)));
    let refused = shop.set(&shop.domain, &["a"], 3).await.expect_err("it is shut down");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
}

/// Committed, and then the store gets nowhere: the caller learns at its deadline that it is committed.
#[tokio::test(start_paused = true)]
async fn an_apply_or_a_refresh_that_hangs_holds_nobody_beyond_the_deadline() {
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
        shop.store.set_refresh(refresh);
        let items = &shop.items;
        let options = Options::default()
            .with_timeout(Some(Duration::from_secs(2)))
            .with_wait_for(acknowledge);
        let begun = Instant::now();
        let run = shop.domain.run::<(), Error, _>(&options, async |tx| {
            tx.get_many(items, ids.iter().copied()).await?;
            ids.iter().try_for_each(|id| tx.put(items, *id, &Item { n: 2 }))
        });
        let receipt = run.await.expect("it is committed").receipt;
        assert!(!receipt.applied && receipt.commit_version.is_some(), "{receipt:?}");
        assert!(begun.elapsed() < Duration::from_millis(2_200), "{:?}", begun.elapsed());
        assert_eq!(shop.value("a").await, Some(2));
    }
}

/// A node that lags says that there is no alias, again and again: it is asked with pauses, until the deadline.
#[tokio::test(start_paused = true)]
async fn a_partition_that_is_not_known_everywhere_is_asked_for_with_pauses() {
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

/// What records cost on disk: an aborted one is a few hundred bytes, whatever the transaction wanted to write.
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
    // No id and no time of a record has so many digits.
    let content = i64::MAX;
    tx.put(&shop.items, "a", &Item { n: content }).expect("notes it");
    tokio::time::sleep(Duration::from_secs(2)).await;
    tx.rollback().await;
    let records = records.lock();
    let aborted = records.last().expect("a heartbeat wrote one");
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
