//! A staged transaction whose owner is dead, or waits: what becomes of it, and what others see of it meanwhile.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use txn_core::store::{Key, Layer, MemoryStore, Outcome, Read, Store, Write, WriteOp};
use txn_core::{Domain, Error, ErrorKind, Options, TransactionOutcome};

use super::parallel::{
    die_with, is_lock_of, is_staged, parallel, refuse_the_mark, set_both, shop, values,
};
use super::support::{Fate, Item, Items, Scripted, Shop, config, is_commit};

/// A staged transaction whose owner died with its lock on `a` alone; then somebody deleted `b`.
async fn staged_without_b() -> Shop {
    let shop = shop().await;
    die_with(&shop.store, |write| is_lock_of(write, "a"));
    set_both(&shop, 2).await.expect_err("its owner dies");
    overwrite(&shop, "b", None).await;
    shop
}

/// Another client writes a document, or deletes it.
async fn overwrite(shop: &Shop, id: &str, source: Option<&str>) {
    let key = Key::new("items", id);
    let read = shop.memory.get_many(std::slice::from_ref(&key)).await.swap_remove(0);
    let Read::Found { version, .. } = read else { panic!("it is there: {read:?}") };
    let op = match source {
        Some(source) => WriteOp::Replace(source.into(), version),
        None => WriteOp::Delete(version),
    };
    let written = shop.memory.write_many(&[Write::new(key, op)]).await;
    assert!(matches!(written.as_slice(), [Outcome::Applied(_)]), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_dies_is_recovered_wherever_it_was() {
    type Point = (&'static str, fn(&Write) -> bool, i64);
    let points: [Point; 5] = [
        ("the record alone", is_staged, 1),
        ("dry runs", |write| matches!(write.op, WriteOp::Check(_)), 1),
        ("one lock", |write| is_lock_of(write, "a"), 1),
        ("all locks", |write| is_lock_of(write, "b"), 2),
        ("the mark", is_commit, 2),
    ];
    for (point, which, expect) in points {
        for by in ["janitor", "writer", "reader", "outcome"] {
            let shop = shop().await;
            die_with(&shop.store, which);
            let dying = shop.domain.begin(&Options::default()).expect("begins");
            dying.get_many(&shop.items, ["a", "b"]).await.expect("reads");
            for id in ["a", "b"] {
                dying.put(&shop.items, id, &Item { n: 2 }).expect("takes it");
            }
            let tid = dying.tid();
            let told = dying.commit().await;
            assert!(told.is_ok() == (expect == 2) || point == "all locks", "{point}: {told:?}");
            if told.is_ok() {
                assert_eq!(expect, 2, "{point}");
            }
            match by {
                "janitor" => drop(shop.other.janitor_pass().await.expect("passes")),
                "writer" => shop.set(&shop.other, &["a", "b"], expect).await.expect("gets through"),
                "outcome" => {
                    let outcome = shop.other.outcome(tid).await.expect("known");
                    let committed = matches!(outcome, TransactionOutcome::Committed { .. });
                    assert_eq!(committed, expect == 2, "{point}: {outcome:?}");
                }
                _ => {}
            }
            let read = shop.other.reader().get_many(&shop.items, ["a", "b"]).await.expect("reads");
            let read: Vec<i64> = read.into_iter().flatten().map(|item| item.n).collect();
            assert_eq!(read, [expect; 2], "{point}, {by}");
            shop.other.janitor_pass().await.expect("passes");
            shop.drained().await;
            assert_eq!(values(&shop).await, [Some(expect); 2], "{point}, {by}");
            let outcome = shop.other.outcome(tid).await.expect("known");
            let committed = matches!(outcome, TransactionOutcome::Committed { .. });
            assert_eq!(committed, expect == 2, "{point}, {by}: {outcome:?}");
        }
    }
}

/// Another owner that died with its placeholder on `b`.
async fn dies_inserting_b(shop: &Shop) -> Domain {
    let store = Arc::new(Scripted::new(shop.memory.clone()));
    let domain = Domain::create(store.clone(), "shop", config()).await.expect("opens");
    die_with(&store, |write| is_lock_of(write, "b"));
    let insert = domain.transact::<_, Error, _>(async |tx| {
        ["b", "c"].iter().try_for_each(|id| tx.insert(&shop.items, *id, &Item { n: 3 }))
    });
    insert.await.expect_err("its owner dies");
    domain
}

/// A missing document, and one that somebody else inserts anew, shut the lock of a staged transaction out as well.
#[tokio::test(start_paused = true)]
async fn a_fence_is_found_where_the_document_is_gone() {
    for inserted in [false, true] {
        let shop = staged_without_b().await;
        if inserted {
            cov_mark::check!(placeholder_in_the_way_of_a_fence);
            let _dead = dies_inserting_b(&shop).await;
            cov_mark::check!(staged_transaction_fenced);
            shop.other.janitor_pass().await.expect("passes");
        } else {
            cov_mark::check!(staged_transaction_fenced);
            shop.other.janitor_pass().await.expect("passes");
        }
        shop.drained().await;
        assert_eq!(values(&shop).await, [Some(1), None]);
    }
}

/// A store where the placeholder on `b` comes back as often as it is taken off.
#[derive(Debug)]
struct Recurring(Arc<MemoryStore>);

#[async_trait]
impl Layer for Recurring {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for write in writes {
            let before = self.0.get_many(std::slice::from_ref(&write.key)).await.swap_remove(0);
            let outcome = self.0.write_many(std::slice::from_ref(write)).await.swap_remove(0);
            if let (WriteOp::Delete(_), Outcome::Applied(_), Read::Found { source, .. }) =
                (&write.op, &outcome, before)
            {
                let again = Write::new(write.key.clone(), WriteOp::Create(source));
                self.0.write_many(&[again]).await;
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_a_placeholder_off_has_fenced() {
    let shop = staged_without_b().await;
    let _dead = dies_inserting_b(&shop).await;
    let store = Arc::new(Recurring(shop.memory.clone()));
    let recoverer = Domain::create(store, "shop", config()).await.expect("opens");
    cov_mark::check!(staged_transaction_fenced);
    shop.set(&recoverer, &["a"], 4).await.expect("gets through");
    assert_eq!(shop.value("a").await, Some(4));
}

/// Whoever recovers inserted the document itself that the dead one was to lock: it goes on, and does not start again.
#[tokio::test(start_paused = true)]
async fn an_own_placeholder_is_a_fence() {
    let shop = staged_without_b().await;
    cov_mark::check!(own_placeholder_is_a_fence);
    assert_eq!(attempts_to_insert_b(&shop, &shop.other).await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_own_placeholder_in_doubt_is_spared() {
    let shop = staged_without_b().await;
    let store = Arc::new(Scripted::new(shop.memory.clone()));
    let domain = Domain::create(store.clone(), "shop", config()).await.expect("opens");
    // Longer than a lease: the staged one is dead by then.
    let began = tokio::time::Instant::now();
    store.play(move |write| {
        let in_doubt = is_lock_of(write, "b") && began.elapsed() < Duration::from_secs(3);
        match in_doubt {
            true => Fate::AnswerWith(Outcome::Unknown("the connection was reset".to_owned())),
            false => Fate::Pass,
        }
    });
    assert_eq!(attempts_to_insert_b(&shop, &domain).await, 1);
}

async fn attempts_to_insert_b(shop: &Shop, domain: &Domain) -> u32 {
    let items = &shop.items;
    let options = Options::default();
    let run = domain.run::<_, Error, _>(&options, async |tx| {
        tx.get_many(items, ["a"]).await?;
        tx.insert(items, "b", &Item { n: 3 })?;
        tx.put(items, "a", &Item { n: 3 })
    });
    let committed = run.await.expect("gets through");
    shop.drained().await;
    assert_eq!(values(shop).await, [Some(3); 2]);
    committed.receipt.attempts
}

const UNREADABLE: &str = r#"{"n":1,"transaction_tid":5}"#;

async fn three() -> Shop {
    Shop::open_with(&["a", "b", "c"], parallel()).await
}

/// One of three cannot be read: another that is not locked is fenced.
#[tokio::test(start_paused = true)]
async fn one_that_is_unreadable_keeps_nobody_from_a_fence() {
    for by in ["writer", "janitor", "reader"] {
        let shop = three().await;
        die_with(&shop.store, |write| is_lock_of(write, "a"));
        shop.set(&shop.domain, &["a", "b", "c"], 2).await.expect_err("its owner dies");
        overwrite(&shop, "b", Some(UNREADABLE)).await;
        if by == "reader" {
            let read = shop.other.reader().get(&shop.items, "a").await.expect("reads");
            assert_eq!(read.map(|item| item.n), Some(1));
            continue;
        }
        cov_mark::check!(staged_transaction_fenced);
        if by == "janitor" {
            shop.other.janitor_pass().await.expect("passes");
        }
        shop.set(&shop.other, &["a"], 3).await.expect("gets through");
        assert_eq!(shop.value("a").await, Some(3), "{by}");
    }
}

/// All the others are locked: it is up to the one that cannot be read, and whoever meets them is told so.
#[tokio::test(start_paused = true)]
async fn what_is_up_to_one_that_is_unreadable_is_told() {
    let shop = three().await;
    die_with(&shop.store, |write| is_lock_of(write, "c"));
    shop.set(&shop.domain, &["a", "b", "c"], 2).await.expect("its answers came before");
    overwrite(&shop, "b", Some(UNREADABLE)).await;
    let write = shop.set(&shop.other, &["a"], 3).await.expect_err("nobody can tell");
    let read = shop.other.reader().get(&shop.items, "a").await.expect_err("nobody can tell");
    for error in [write, read] {
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert_eq!(error.document(), Some(&Key::new("items", "b")), "{error}");
    }
}

/// The outcome of a transaction that was staged over a collection that is dropped behind its locks,
/// and perhaps made again.
#[tokio::test(start_paused = true)]
async fn over_a_collection_that_is_gone_those_that_are_left_decide() {
    for (made_again, inserts) in [(false, false), (true, false), (true, true)] {
        let shop = shop().await;
        let annex: Items = shop.other.create_collection("annex", None).await.expect("opens");
        let insert = shop.other.transact(async |tx| tx.insert(&annex, "x", &Item { n: 1 }));
        insert.await.expect("inserts");
        shop.drained().await;
        die_with(&shop.store, |write| is_lock_of(write, "a"));
        let dying = shop.domain.transact::<_, Error, _>(async |tx| {
            tx.get(&annex, "x").await?;
            tx.get(&shop.items, "a").await?;
            tx.put(&annex, "x", &Item { n: 2 })?;
            tx.put(&shop.items, "a", &Item { n: 2 })
        });
        dying.await.expect("its answers came before");
        shop.memory.drop_collection("annex").await.expect("drops");
        if made_again {
            let annex: Items = shop.other.create_collection("annex", None).await.expect("opens");
            if inserts {
                let insert = shop.other.transact(async |tx| tx.insert(&annex, "x", &Item { n: 5 }));
                insert.await.expect("inserts");
            }
        }
        let is_locked = async || {
            let looked = shop.memory.get_many(&[Key::new("items", "a")]).await.swap_remove(0);
            matches!(looked, Read::Found { source, .. } if source.contains("\"transaction_tid\":\""))
        };
        let passes = async |seconds: u64| {
            let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
            while tokio::time::Instant::now() < until {
                shop.other.janitor_pass().await.expect("passes");
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
        };
        passes(500).await;
        assert!(is_locked().await, "a node that lags says the same");
        let blocked = shop.set(&shop.other, &["a"], 3).await.expect_err("it is not decided");
        assert_eq!(blocked.kind(), ErrorKind::Conflict, "{blocked}");
        cov_mark::check!(staged_over_a_collection_that_is_gone);
        cov_mark::check!(staged_transaction_recovered);
        passes(120).await;
        assert!(!is_locked().await);
        assert_eq!(shop.value("a").await, Some(2));
        shop.set(&shop.other, &["a"], 3).await.expect("gets through");
        if made_again {
            let annex: Items = shop.other.collection("annex").await.expect("opens");
            let read = shop.other.reader().get(&annex, "x").await.expect("reads");
            assert_eq!(read.map(|item| item.n), inserts.then_some(5));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_awaits_the_mark_of_an_owner_that_lives() {
    let shop = shop().await;
    refuse_the_mark(4, &shop.store);
    cov_mark::check!(reader_awaits_the_mark);
    set_both(&shop, 2).await.expect("it is committed");
    let read = shop.other.reader().get_many(&shop.items, ["a", "b"]).await.expect("reads");
    assert!(read.iter().all(|item| item.as_ref().is_some_and(|item| item.n == 2)), "{read:?}");
    shop.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_misses_a_lock_answers_at_once() {
    let shop = shop().await;
    die_with(&shop.store, |write| is_lock_of(write, "a"));
    let dying = set_both(&shop, 2);
    let reading = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let began = tokio::time::Instant::now();
        let read = shop.other.reader().get(&shop.items, "a").await.expect("reads");
        assert_eq!(read.map(|item| item.n), Some(1));
        assert!(began.elapsed() < Duration::from_millis(1), "{:?}", began.elapsed());
    };
    let (died, ()) = tokio::join!(dying, reading);
    died.expect_err("its owner dies");
}
