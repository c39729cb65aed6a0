//! Parallel commit: what it costs, and what becomes of it when a lock or a dry run fails, an answer is lost, the owner dies, or
//! somebody looks in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use txn_core::store::{Outcome, Refusal, RefusalKind, Store, Write, WriteOp};
use txn_core::{Acknowledge, Config, Domain, Error, ErrorKind, Options, TransactionOutcome};
use txn_sim::CountingStore;

use super::support::{Fate, Item, Items, Scripted, Shop, config, is_commit, is_lock, writes};

pub(crate) fn parallel() -> Config {
    config().with_parallel_commit(true)
}

pub(crate) async fn shop() -> Shop {
    Shop::open_with(&["a", "b"], parallel()).await
}

pub(crate) async fn set_both(shop: &Shop, n: i64) -> Result<(), Error> {
    shop.set(&shop.domain, &["a", "b"], n).await
}

pub(crate) async fn values(shop: &Shop) -> [Option<i64>; 2] {
    [shop.value("a").await, shop.value("b").await]
}

pub(crate) fn is_staged(write: &Write) -> bool {
    write.require_alias && writes(write, "\"state\":\"staged\"")
}

pub(crate) fn is_lock_of(write: &Write, id: &str) -> bool {
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
pub(crate) fn refuse_the_mark(times: usize, store: &Scripted) {
    first(times, store, Fate::RefuseWith(Outcome::Rejected("busy".to_owned())), is_commit);
}

/// The owner dies with its first write of a kind, which arrives.
pub(crate) fn die_with(
    store: &Arc<Scripted>,
    which: impl Fn(&Write) -> bool + Send + Sync + 'static,
) {
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
        txn_core::store::Filter::any_of("state", ["staged", "committed", "aborted", "finished"]);
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
async fn an_older_one_waits_for_who_is_staged() {
    let shop = shop().await;
    let options = Options::default().with_pessimistic(true);
    let older = shop.other.begin(&options).expect("begins");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let is_held_up = Arc::new(AtomicBool::new(true));
    let held_up = is_held_up.clone();
    shop.store.play(move |write| match is_commit(write) && held_up.load(Ordering::SeqCst) {
        true => Fate::RefuseWith(Outcome::Rejected("busy".to_owned())),
        false => Fate::Pass,
    });
    set_both(&shop, 2).await.expect("it is committed");
    let mut reading = Box::pin(older.get(&shop.items, "a"));
    // Longer than anybody is given as a courtesy, and shorter than a lease.
    let while_staged = tokio::time::timeout(Duration::from_millis(500), &mut reading).await;
    assert!(while_staged.is_err(), "{while_staged:?}");
    assert_eq!(records(&shop, "\"state\":\"staged\"").await, 1, "nobody else decided it");
    is_held_up.store(false, Ordering::SeqCst);
    let read = reading.as_mut().await.expect("gets its lock");
    drop(reading);
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
    let answer = Arc::new(Notify::new());
    once(&shop.store, Fate::AnswerWhen(answer.clone()), |write| is_lock_of(write, "b"));
    let is_sent = tokio::time::timeout(Duration::from_millis(100), set_both(&shop, 2)).await;
    assert!(is_sent.is_err(), "it waits for that answer: {is_sent:?}");
    assert_eq!(records(&shop, "\"state\":\"staged\"").await, 1);
    cov_mark::check!(committed_in_parallel);
    answer.notify_one();
    shop.drained().await;
    assert_eq!(values(&shop).await, [Some(2); 2]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_within_a_lease_is_not_waited_for() {
    for which in [is_staged as fn(&Write) -> bool, |write| is_lock_of(write, "b")] {
        let shop = shop().await;
        once(&shop.store, Fate::Hang, which);
        cov_mark::check!(staged_bulk_without_an_answer);
        let began = tokio::time::Instant::now();
        set_both(&shop, 2).await.expect("the next attempt commits");
        assert!(began.elapsed() < 2 * config().lease, "{:?}", began.elapsed());
        shop.drained().await;
        assert_eq!(records(&shop, "\"state\":\"aborted\"").await, 1);
        assert_eq!(values(&shop).await, [Some(2); 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_answered_it_is_unknown_and_can_be_asked_for() {
    let shop = shop().await;
    let hangs = AtomicBool::new(false);
    shop.store.play(move |write| {
        hangs.fetch_or(is_lock_of(write, "b"), Ordering::SeqCst);
        if hangs.load(Ordering::SeqCst) { Fate::Hang } else { Fate::Pass }
    });
    let error = set_both(&shop, 2).await.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    let tid = error.tid().expect("it has a record");
    let outcome = shop.other.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "{outcome:?}");
    shop.other.janitor_pass().await.expect("passes");
    assert_eq!(values(&shop).await, [Some(2); 2]);
}

/// Whatever hindered the first attempt, the others lock before they commit.
#[tokio::test(start_paused = true)]
async fn only_the_first_attempt_is_staged() {
    let busy = || Outcome::Rejected("busy".to_owned());
    for groups in [false, true] {
        for (why, which) in [
            (busy(), is_staged as fn(&Write) -> bool),
            (busy(), is_lock),
            (Outcome::Conflict, is_lock),
        ] {
            let memory = shop().await.memory.clone();
            let store = Arc::new(Scripted::new(memory));
            let config = parallel().with_groups(Some(groups));
            let domain = Domain::create(store.clone(), "shop", config).await.expect("opens");
            let items: Items = domain.collection("items").await.expect("opens");
            let staged = Arc::new(AtomicUsize::new(0));
            let (met, counted) = (AtomicUsize::new(0), staged.clone());
            let refused = why.clone();
            store.play(move |write| {
                counted.fetch_add(usize::from(is_staged(write)), Ordering::SeqCst);
                match which(write) && met.fetch_add(1, Ordering::SeqCst) < 1 {
                    true => Fate::RefuseWith(refused.clone()),
                    false => Fate::Pass,
                }
            });
            let began = tokio::time::Instant::now();
            let options = Options::default();
            let run = domain.run::<_, Error, _>(&options, async |tx| {
                tx.get_many(&items, ["a", "b"]).await?;
                ["a", "b"].iter().try_for_each(|id| tx.put(&items, *id, &Item { n: 2 }))
            });
            let committed = run.await.expect("the next attempt commits");
            assert_eq!(committed.receipt.attempts, 2, "{why:?}");
            assert_eq!(staged.load(Ordering::SeqCst), 1, "{why:?}, groups: {groups}");
            let at_once = began.elapsed() < Duration::from_millis(1);
            assert_eq!(at_once, why == Outcome::Conflict, "a store that is busy is given a moment");
        }
    }
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
