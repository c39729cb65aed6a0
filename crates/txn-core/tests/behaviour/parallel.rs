//! Parallel commit: what it costs, and what becomes of it when a lock or a dry run fails, an answer is lost, the owner dies, or
//! somebody looks in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use txn_core::store::{Key, Outcome, Read, Refusal, RefusalKind, Store, Write, WriteOp};
use txn_core::{Acknowledge, Config, Domain, Error, ErrorKind, Options, TransactionOutcome};
use txn_sim::CountingStore;

use super::support::{Fate, Item, Items, Scripted, Shop, config, is_commit, is_lock, writes};

fn parallel() -> Config {
    config().with_parallel_commit(true)
}

async fn shop() -> Shop {
    Shop::open_with(&["a", "b"], parallel()).await
}

async fn set_both(shop: &Shop, n: i64) -> Result<(), Error> {
    shop.set(&shop.domain, &["a", "b"], n).await
}

async fn values(shop: &Shop) -> [Option<i64>; 2] {
    [shop.value("a").await, shop.value("b").await]
}

fn is_staged(write: &Write) -> bool {
    write.require_alias && writes(write, "\"state\":\"staged\"")
}

fn is_lock_of(write: &Write, id: &str) -> bool {
    is_lock(write) && *write.key.id == *id
}

/// The first so many writes of a kind have this fate.
fn first(
    times: usize,
    store: &Scripted,
    fate: Fate,
    which: impl Fn(&Write) -> bool + Send + Sync + 'static,
) {
    let met = AtomicUsize::new(0);
    store.play(move |write| match which(write) && met.fetch_add(1, Ordering::SeqCst) < times {
        true => fate.clone(),
        false => Fate::Pass,
    });
}

/// The first write of a kind has this fate.
fn once(store: &Scripted, fate: Fate, which: impl Fn(&Write) -> bool + Send + Sync + 'static) {
    first(1, store, fate, which);
}

/// The mark of a commit is refused so often.
fn refuse_the_mark(times: usize, store: &Scripted) {
    first(times, store, Fate::RefuseWith(Outcome::Rejected("busy".to_owned())), is_commit);
}

/// The owner dies with its first write of a kind, which arrives.
fn die_with(store: &Arc<Scripted>, which: impl Fn(&Write) -> bool + Send + Sync + 'static) {
    let weak = Arc::downgrade(store);
    store.play(move |write| {
        if which(write)
            && let Some(store) = weak.upgrade()
        {
            store.set_down(true);
        }
        Fate::Pass
    });
}

/// The states of all records that do not end a transaction of before.
async fn records(shop: &Shop, staged: &str) -> usize {
    let day = shop.domain.begin(&Options::default()).expect("begins").tid().day();
    let partition = format!("txn-shop-{day}");
    let filter =
        txn_core::store::Filter::AnyOf("state", vec!["staged", "committed", "aborted", "finished"]);
    let page = shop.memory.scan(&partition, &filter, 1_000, None).await.expect("scans");
    page.documents.iter().filter(|(_, _, source)| source.contains(staged)).count()
}

#[tokio::test(start_paused = true)]
async fn it_takes_two_round_trips_and_one_from_memory() {
    for (groups, round_trips) in [(false, 2), (true, 1)] {
        let shop = shop().await;
        let store = Arc::new(CountingStore::new(shop.memory.clone()));
        let config = parallel().with_groups(Some(groups));
        let domain = Domain::create(store.clone(), "shop", config).await.expect("opens");
        let items: Items = domain.collection("items").await.expect("opens");
        let set = async |n: i64| {
            let options = Options::default().with_acknowledge(Acknowledge::Applied);
            let set = domain.run::<_, Error, _>(&options, async |tx| {
                tx.get_many(&items, ["a", "b"]).await?;
                ["a", "b"].iter().try_for_each(|id| tx.put(&items, *id, &Item { n }))
            });
            set.await.expect("commits");
        };
        set(2).await;
        let before = store.counts();
        set(3).await;
        let counts = store.counts().since(before);
        // The mark, the apply and the mark that it is finished are behind the acknowledgement.
        assert_eq!(counts.requests(), round_trips + 3, "groups: {groups}: {counts}");
        assert_eq!(counts.documents_written, 2 * 2 + 3, "{counts}");
        assert_eq!(values(&shop).await, [Some(3); 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_staged_commits_as_always() {
    let shop = Shop::open_with(&["a", "b", "c"], parallel()).await;
    let items = &shop.items;
    shop.store.play(|write| {
        assert!(!is_staged(write), "{write:?}");
        Fate::Pass
    });
    let blind = async |tx: &txn_core::Transaction| {
        ["a", "b"].iter().try_for_each(|id| tx.put(items, *id, &Item { n: 2 }))
    };
    shop.domain.transact::<_, Error, _>(blind).await.expect("what was not read");
    shop.drained().await;
    let inserts = async |tx: &txn_core::Transaction| {
        tx.get_many(items, ["a", "x"]).await?;
        ["a", "x"].iter().try_for_each(|id| tx.put(items, *id, &Item { n: 3 }))
    };
    shop.domain.transact::<_, Error, _>(inserts).await.expect("an insert");
    shop.drained().await;
    let reads_more = async |tx: &txn_core::Transaction| {
        tx.get_many(items, ["a", "b", "c"]).await?;
        ["a", "b"].iter().try_for_each(|id| tx.put(items, *id, &Item { n: 4 }))
    };
    shop.domain.transact::<_, Error, _>(reads_more).await.expect("a read to validate");
    shop.drained().await;
    let options = Options::default().with_pessimistic(true);
    let locks = async |tx: &txn_core::Transaction| {
        tx.get_many(items, ["a", "b"]).await?;
        ["a", "b"].iter().try_for_each(|id| tx.put(items, *id, &Item { n: 5 }))
    };
    shop.domain.run::<_, Error, _>(&options, locks).await.expect("one that locks as it reads");
    shop.drained().await;
    assert_eq!(values(&shop).await, [Some(5); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_staged() {
    let shop = shop().await;
    let items = &shop.items;
    let delete = shop.domain.transact::<_, Error, _>(async |tx| {
        tx.get_many(items, ["a", "b"]).await?;
        tx.delete(items, "a")?;
        tx.put(items, "b", &Item { n: 2 })
    });
    delete.await.expect("commits");
    shop.drained().await;
    assert_eq!(records(&shop, "\"op\":\"delete\"").await, 1);
    assert_eq!(values(&shop).await, [None, Some(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_fails_aborts_its_record_before_it_tries_again() {
    let shop = shop().await;
    once(&shop.store, Fate::RefuseWith(Outcome::Conflict), |write| is_lock_of(write, "b"));
    cov_mark::check!(staged_record_aborted_by_its_owner);
    set_both(&shop, 2).await.expect("the next attempt commits");
    shop.drained().await;
    assert_eq!(records(&shop, "\"state\":\"aborted\"").await, 1);
    assert_eq!(values(&shop).await, [Some(2); 2]);
}

#[tokio::test(start_paused = true)]
async fn what_changed_meanwhile_is_read_again() {
    let shop = shop().await;
    let (items, other) = (&shop.items, &shop.other);
    let tries = AtomicUsize::new(0);
    let add = shop.domain.transact::<_, Error, _>(async |tx| {
        let read = tx.get_many(items, ["a", "b"]).await?;
        if tries.fetch_add(1, Ordering::SeqCst) == 0 {
            let changed = shop.set(other, &["b"], 10);
            changed.await?;
        }
        for (id, item) in ["a", "b"].iter().zip(read) {
            tx.put(items, *id, &Item { n: item.map_or(0, |item| item.n) + 1 })?;
        }
        Ok(())
    });
    add.await.expect("commits");
    shop.drained().await;
    assert_eq!(values(&shop).await, [Some(2), Some(11)]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_fails_is_told_once_the_record_is_aborted() {
    let shop = shop().await;
    let refusal =
        Refusal { kind: RefusalKind::Document, reason: "mapper_parsing_exception".to_owned() };
    let refused = Fate::RefuseWith(Outcome::Invalid(refusal));
    once(&shop.store, refused, |write| matches!(write.op, WriteOp::Check(_)));
    cov_mark::check!(staged_record_aborted_by_its_owner);
    let error = set_both(&shop, 2).await.expect_err("it does not fit");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    shop.drained().await;
    assert_eq!(values(&shop).await, [Some(1); 2]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_settled_by_the_own_record() {
    let unknown = || Outcome::Unknown("the connection was reset".to_owned());
    for fate in [Fate::AnswerWith(unknown()), Fate::RefuseWith(unknown())] {
        for which in [is_staged as fn(&Write) -> bool, is_lock] {
            let shop = shop().await;
            once(&shop.store, fate.clone(), which);
            set_both(&shop, 2).await.expect("the next attempt commits");
            shop.drained().await;
            assert_eq!(records(&shop, "\"state\":\"aborted\"").await, 1, "{fate:?}");
            assert_eq!(values(&shop).await, [Some(2); 2], "{fate:?}");
        }
    }
}

/// All locks stand, one of them without an answer, and who recovers is faster than the owner.
#[tokio::test(start_paused = true)]
async fn what_others_committed_is_told_as_committed() {
    let shop = shop().await;
    let weak = Arc::downgrade(&shop.store);
    let unknown = Fate::AnswerWith(Outcome::Unknown("the connection was reset".to_owned()));
    let met = AtomicUsize::new(0);
    shop.store.play(move |write| {
        if is_lock_of(write, "b") && met.fetch_add(1, Ordering::SeqCst) == 0 {
            if let Some(store) = weak.upgrade() {
                store.set_down(true);
            }
            return unknown.clone();
        }
        Fate::Pass
    });
    cov_mark::check!(staged_record_committed_by_others);
    let (set, ()) = tokio::join!(set_both(&shop, 2), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let report = shop.other.janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{report:?}");
        shop.store.set_down(false);
    });
    set.expect("it is committed");
    shop.drained().await;
    assert_eq!(values(&shop).await, [Some(2); 2]);
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

/// A missing document, and one that somebody else inserts anew, shut the lock of a staged transaction out as well.
#[tokio::test(start_paused = true)]
async fn a_fence_is_found_where_the_document_is_gone() {
    for inserted in [false, true] {
        let shop = shop().await;
        die_with(&shop.store, |write| is_lock_of(write, "a"));
        set_both(&shop, 2).await.expect_err("its owner dies");
        let b = Key::new("items", "b");
        let Read::Found { version, .. } =
            shop.memory.get_many(std::slice::from_ref(&b)).await.swap_remove(0)
        else {
            panic!("it is there")
        };
        shop.memory.write_many(&[Write::new(b.clone(), WriteOp::Delete(version))]).await;
        if inserted {
            cov_mark::check!(placeholder_in_the_way_of_a_fence);
            // Another owner dies with a placeholder there.
            let store = Arc::new(Scripted::new(shop.memory.clone()));
            let domain = Domain::create(store.clone(), "shop", config()).await.expect("opens");
            die_with(&store, |write| is_lock_of(write, "b"));
            let insert = domain.transact::<_, Error, _>(async |tx| {
                ["b", "c"].iter().try_for_each(|id| tx.insert(&shop.items, *id, &Item { n: 3 }))
            });
            insert.await.expect_err("its owner dies");
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

#[tokio::test(start_paused = true)]
async fn an_older_one_waits_for_who_is_staged() {
    let shop = shop().await;
    let options = Options::default().with_pessimistic(true);
    let older = shop.other.begin(&options).expect("begins");
    tokio::time::sleep(Duration::from_millis(5)).await;
    refuse_the_mark(6, &shop.store);
    set_both(&shop, 2).await.expect("it is committed");
    let read = older.get(&shop.items, "a").await.expect("gets its lock");
    assert_eq!(read.map(|item| item.n), Some(2));
    older.put(&shop.items, "a", &Item { n: 3 }).expect("takes it");
    older.commit().await.expect("commits");
    shop.drained().await;
    assert_eq!(values(&shop).await, [Some(3), Some(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_changes_nothing_once_it_is_sent() {
    let shop = shop().await;
    // The lock arrives, and its answer comes too late for the caller.
    let (domain, items) = (shop.domain.clone(), shop.items.clone());
    let setting = tokio::spawn(async move {
        domain
            .transact::<_, Error, _>(async |tx| {
                tx.get_many(&items, ["a", "b"]).await?;
                ["a", "b"].iter().try_for_each(|id| tx.put(&items, *id, &Item { n: 2 }))
            })
            .await
    });
    let is_locked = async || {
        let looked = shop.memory.get_many(&[Key::new("items", "a")]).await.swap_remove(0);
        matches!(looked, Read::Found { source, .. } if source.contains("\"transaction_tid\":\""))
    };
    while !is_locked().await && !setting.is_finished() {
        tokio::task::yield_now().await;
    }
    setting.abort();
    shop.drained().await;
    assert_eq!(values(&shop).await, [Some(2); 2]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_unknown_and_can_be_asked_for() {
    let shop = shop().await;
    once(&shop.store, Fate::Hang, |write| is_lock_of(write, "b"));
    let error = set_both(&shop, 2).await.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    let tid = error.tid().expect("it has a record");
    let outcome = shop.other.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "{outcome:?}");
    shop.other.janitor_pass().await.expect("passes");
    assert_eq!(values(&shop).await, [Some(2); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_mark() {
    let shop = shop().await;
    refuse_the_mark(4, &shop.store);
    set_both(&shop, 2).await.expect("it is committed");
    let drained = shop.domain.shutdown(Duration::from_secs(10)).await;
    assert!(shop.other.inspect().await.expect("looks").is_clean(), "{drained:?}");
    assert_eq!(values(&shop).await, [Some(2); 2]);
}
