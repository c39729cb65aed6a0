//! Reads of closures and readers, and errors based on reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use txn_core::store::{Outcome, Refusal, RefusalKind, Write, WriteOp};
use txn_core::{Committed, Domain, Error, ErrorKind, LockMode, Options};
use txn_sim::Fate;

use crate::support::script::is_commit;
use crate::support::{Item, Setup, Shop, World};

/// Renames an item, if the item exists.
async fn rename(shop: &Shop, from: &str, to: &str) {
    let items = &shop.items;
    let renamed = shop.other.transact::<_, Error, _>(async |tx| {
        if tx.get(items, from).await?.is_none() {
            return Ok(());
        }
        tx.delete(items, from)?;
        tx.insert(items, to, &Item { n: 1 })
    });
    renamed.await.expect("renames");
    shop.drained().await;
}

#[derive(Debug)]
enum Failure {
    BothMissing,
    Engine(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// The only item is always named `a` or `b`. A closure that misses both has read two states.
#[tokio::test(start_paused = true)]
async fn error_based_on_absences_is_validated() {
    let shop = Shop::open(&["b"]).await;
    let runs = AtomicUsize::new(0);
    let items = &shop.items;
    let looked = shop.domain.transact::<(), Failure, _>(async |tx| {
        let a = tx.get(items, "a").await?;
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            rename(&shop, "b", "a").await;
        }
        let b = tx.get(items, "b").await?;
        // Each document was absent at the time of its read.
        match (a, b) {
            (None, None) => Err(Failure::BothMissing),
            _ => Ok(()),
        }
    });
    looked.await.expect("one document exists");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    shop.drained().await;
}

/// A name could also change between two reads of the validation. Locks exclude that.
#[tokio::test(start_paused = true)]
async fn absences_behind_an_error_are_locked() {
    let shop = Shop::open(&["c"]).await;
    let verified: Arc<AtomicUsize> = Arc::default();
    let count = verified.clone();
    shop.store.play(move |write| {
        if matches!(write.op, WriteOp::Verify(None)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Fate::Pass
    });
    let items = &shop.items;
    let looked = shop.domain.transact::<(), Failure, _>(async |tx| {
        tx.get(items, "a").await?;
        tx.get(items, "b").await?;
        Err(Failure::BothMissing)
    });
    assert!(matches!(looked.await, Err(Failure::BothMissing)));
    assert_eq!(verified.load(Ordering::SeqCst), 0);
    shop.drained().await;
}

#[tokio::test(start_paused = true)]
async fn unvalidated_application_error_is_not_returned() {
    let shop = Shop::open(&["a"]).await;
    let (items, store) = (&shop.items, &shop.store);
    let options = Options::default().with_timeout(Some(Duration::from_secs(3)));
    let failed = shop.domain.run::<(), Failure, _>(&options, async |tx| {
        tx.get(items, "a").await?;
        store.set_down(true);
        Err(Failure::BothMissing)
    });
    match failed.await {
        Err(Failure::Engine(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        other => panic!("{:?}", other.map(drop)),
    }
}

/// A closure gives up the read of a locked document and continues.
#[tokio::test(start_paused = true)]
async fn dropped_read_does_not_delay_the_commit() {
    let shop = Shop::open(&["a", "b"]).await;
    let items = &shop.items;
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let older = shop.domain.begin(&pessimistic).expect("begins");
    older.get(items, "a").await.expect("locks");
    let began = tokio::time::Instant::now();
    let committed = shop.domain.run::<_, Error, _>(&pessimistic, async |tx| {
        let soon = Duration::from_millis(50);
        tokio::time::timeout(soon, tx.get(items, "a")).await.expect_err("an older holder");
        tx.get(items, "b").await?;
        tx.put(items, "b", &Item { n: 2 })
    });
    let Committed { receipt, .. } = committed.await.expect("commits");
    assert_eq!((receipt.attempts, shop.value("b").await), (1, Some(2)));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    older.rollback().await;
    shop.drained().await;
}

/// A holder that has validated precedes every commit acknowledged since.
#[tokio::test(start_paused = true)]
async fn a_verified_read_waits_for_an_undecided_holder() {
    let shop = Shop::open(&["a", "b"]).await;
    let held: Arc<tokio::sync::Semaphore> = Arc::new(tokio::sync::Semaphore::new(0));
    // The store refuses the commit for certain until the test adds a permit.
    let gate = held.clone();
    shop.store.play(move |write| match is_commit(write) && gate.available_permits() == 0 {
        true => Fate::RefuseWith(Outcome::Rejected("not yet".to_owned())),
        false => Fate::Pass,
    });
    let items = &shop.items;
    let commit = shop.domain.transact::<_, Error, _>(async |tx| {
        tx.get_many(items, ["a", "b"]).await?;
        tx.put(items, "a", &Item { n: 2 })?;
        tx.put(items, "b", &Item { n: 2 })
    });
    let verified = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let unverified = shop.other.reader().get(items, "a").await.expect("reads");
        assert_eq!(unverified, Some(Item { n: 1 }), "an unverified read does not wait");
        let read = shop.other.reader().verified();
        let (read, ()) = tokio::join!(read.get(items, "a"), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            held.add_permits(1);
        });
        assert_eq!(read.expect("reads"), Some(Item { n: 2 }));
    };
    let (committed, ()) = tokio::join!(commit, verified);
    committed.expect("commits");
    shop.drained().await;
}

/// Returns the attempts of a reader while ten writers are faster.
async fn attempts_of_a_reader(options: &Options) -> u32 {
    const IDS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let shop = Shop::open(&IDS).await;
    let write = async |domain: &Domain, id: &str| loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        shop.set(domain, &[id], 2).await.expect("writes");
    };
    let slow = async |tx: &txn_core::Transaction| {
        let mut read = Vec::new();
        for id in IDS {
            read.push(tx.get(&shop.items, id).await?);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(read)
    };
    let writers = futures::future::join_all(IDS.map(|id| write(&shop.other, id)));
    tokio::select! {
        biased;
        read = shop.domain.run::<_, Error, _>(options, slow) => {
            let read = read.expect("the reader is not starved");
            assert_eq!(read.value.len(), IDS.len());
            read.receipt.attempts
        }
        _ = writers => unreachable!("they write for ever"),
    }
}

#[tokio::test(start_paused = true)]
async fn read_only_transactions_lock_before_they_starve() {
    for options in [Options::default(), Options::default().with_read_only(true)] {
        let attempts = attempts_of_a_reader(&options).await;
        assert!(attempts <= 5, "{attempts} attempts");
    }
}

/// Two processes take the next number of a sequence. The older transaction wounds the younger one.
#[tokio::test(start_paused = true)]
async fn stale_transaction_gets_conflict_instead_of_exists() {
    let shop = Shop::open(&["a"]).await;
    let items = shop.items.clone();
    let older =
        shop.other.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    // The older transaction locks the id of its later insert.
    older.get(&items, "seq1").await.expect("reads");
    let younger = {
        let (domain, items) = (shop.domain.clone(), items.clone());
        tokio::spawn(async move {
            domain
                .transact::<_, Error, _>(async |tx| {
                    let n = tx.get(&items, "a").await?.expect("exists").n;
                    tx.insert(&items, format!("seq{n}"), &Item { n })?;
                    tx.put(&items, "a", &Item { n: n + 1 })
                })
                .await
        })
    };
    tokio::time::sleep(Duration::from_millis(1)).await;
    let n = older.get(&items, "a").await.expect("reads").expect("exists").n;
    older.insert(&items, format!("seq{n}"), &Item { n }).expect("buffers");
    older.put(&items, "a", &Item { n: n + 1 }).expect("buffers");
    older.commit().await.expect("commits");
    younger.await.expect("no panic").expect("the retry takes the next number");
    shop.drained().await;
    assert_eq!((shop.value("a").await, shop.value("seq2").await), (Some(3), Some(2)));
}

/// The store refuses a content that rests on reads of two states.
#[tokio::test(start_paused = true)]
async fn refused_content_of_stale_reads_is_retried() {
    let shop = Shop::open(&["a", "b", "c"]).await;
    shop.store.play(|write| match &write.op {
        WriteOp::Check(source) if source.contains("\"n\":666") => {
            let reason = "it does not fit the mapping".to_owned();
            Fate::RefuseWith(Outcome::Invalid(Refusal { kind: RefusalKind::Document, reason }))
        }
        _ => Fate::Pass,
    });
    let items = &shop.items;
    let written = shop.domain.transact::<_, Error, _>(async |tx| {
        let a = tx.get(items, "a").await?.expect("exists").n;
        if a == 1 {
            shop.set(&shop.other, &["a", "b"], 2).await?;
            shop.drained().await;
        }
        let b = tx.get(items, "b").await?.expect("exists").n;
        tx.put(items, "c", &Item { n: if a == b { 7 } else { 666 } })
    });
    written.await.expect("a and b are always equal");
    shop.drained().await;
    assert_eq!(shop.value("c").await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn verified_read_under_own_lock_is_invalid() {
    let shop = Shop::open(&["a"]).await;
    let items = &shop.items;
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let read = shop.domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(items, "a").await?;
        Ok(shop.domain.reader().verified().get(items, "a").await.expect_err("own lock"))
    });
    let error = read.await.expect("commits").value;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// The index is blocked before recovery removes a dead owner's lock.
#[tokio::test(start_paused = true)]
async fn void_lock_in_a_blocked_index_can_be_read_through() {
    let shop = Shop::open(&["a"]).await;
    let tx =
        shop.domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(&shop.items, "a").await.expect("locks");
    shop.store.set_down(true);
    let World { store: way, domain: reader, items, .. }: World =
        Setup::on(shop.memory.clone()).open().await;
    let is_item = |write: &Write| write.op.changes() && *write.key.collection == *"items";
    let kind = RefusalKind::Blocked;
    let blocked = Outcome::Invalid(Refusal { kind, reason: "index write blocked".to_owned() });
    way.play(move |write| match is_item(write) {
        true => Fate::RefuseWith(blocked.clone()),
        false => Fate::Pass,
    });
    let read = reader.reader().verified().get(&items, "a").await.expect("reads");
    assert_eq!(read, Some(Item { n: 1 }));
    let read = reader.transact::<_, Error, _>(async |tx| tx.get(&items, "a").await);
    assert_eq!(read.await.expect("reads"), Some(Item { n: 1 }));
    drop(tx);
}
