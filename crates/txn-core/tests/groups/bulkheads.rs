//! Groups with a slow or blocked collection, or with refused documents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::time::{Instant, sleep, timeout};
use txn_core::store::{Key, MemoryStore, Outcome, Refusal, RefusalKind, Store, Write};
use txn_core::{Collection, Domain, Error, ErrorKind, LockMode, Options, Raw, Result};
use txn_sim::{Call, Fate, Scripted, Step};

use super::{Account, Bank, Refused};
use crate::support::script::{is_commit, is_lock, writes};
use crate::support::{Item, Setup, World, config};

/// The state of the collection `cold`.
#[derive(Debug, Default)]
struct Cold {
    is_blocked: AtomicBool,
    /// The milliseconds of a request with documents of `cold`.
    takes: AtomicU64,
    /// The milliseconds of a write of documents of `cold`, before the write.
    writes_take: AtomicU64,
}

impl Cold {
    /// Lets each request take 2 ms. Requests with documents of `cold` take longer.
    fn step(&self, call: Call<'_>) -> Step {
        if !call.has(|_| true) {
            return Step::pass();
        }
        let mut millis = 2;
        if call.has(is_cold) {
            millis = millis.max(self.takes.load(Ordering::Relaxed));
        }
        if call.writes(|write| is_cold(&write.key) && write.op.changes()) {
            millis += self.writes_take.load(Ordering::Relaxed);
        }
        Step::delay(Duration::from_millis(millis))
    }

    fn fate(&self, write: &Write) -> Fate {
        match self.is_blocked.load(Ordering::Relaxed) && is_cold(&write.key) {
            true => Fate::RefuseWith(Outcome::Rejected("index blocked".to_owned())),
            false => Fate::Pass,
        }
    }
}

fn is_cold(key: &Key) -> bool {
    *key.collection == *"cold"
}

struct Load {
    /// The store with the state of `cold`.
    server: Arc<Cold>,
    domain: Domain,
    hot: Collection<Raw>,
    cold: Collection<Raw>,
}

impl Load {
    async fn open() -> Self {
        let (memory, server) = (Arc::new(MemoryStore::new()), Arc::new(Cold::default()));
        let store = Scripted::new(memory.clone());
        let (of_calls, of_writes) = (server.clone(), server.clone());
        store.before(move |call| of_calls.step(call));
        store.play(move |write| of_writes.fate(write));
        let config = config().with_group_commit(Some(true)).with_request_batching(Some(true));
        let setup = Setup::on(memory).below(Arc::new(store)).config(config);
        let world = setup.collections(&["hot", "cold"]).open().await;
        let cold = world.others[0].clone();
        Self { server, domain: world.domain, hot: world.items, cold }
    }

    /// Adds to the number in `cold/x` if it reaches `least`. Returns whether the committed run did
    /// so.
    async fn add(&self, by: i64, least: i64) -> Result<bool> {
        let adds = self.domain.transact(async |tx| {
            let found = tx.get(&self.cold, "x").await?;
            let text = found.as_ref().map_or("{\"n\":0}", Raw::as_str);
            let n: i64 = text[5..text.len() - 1].parse().expect("a number");
            if n >= least {
                tx.put(&self.cold, "x", &Raw::new(format!("{{\"n\":{}}}", n + by)))?;
            }
            Ok(n >= least)
        });
        adds.await
    }

    async fn put(&self, collection: &Collection<Raw>, ids: [String; 2]) -> Result<()> {
        let put = self.domain.transact(async |tx| {
            tx.get_many(collection, ids.iter().map(String::as_str)).await?;
            ids.iter().try_for_each(|id| tx.put(collection, id.as_str(), &Raw::new("{}")))
        });
        put.await
    }

    /// Counts the hot transactions of 32 clients in 4 s.
    ///
    /// Meanwhile 20 cold transactions start per second.
    async fn hot_commits(&self) -> usize {
        let ends = Instant::now() + Duration::from_secs(4);
        let hot = join_all((0..32).map(|client| async move {
            let mut done = 0;
            while Instant::now() < ends {
                let [one, two] = [(client + done) % 10, (client + done * 3 + 1) % 10];
                let ids = [one.to_string(), (10 + two).to_string()];
                self.put(&self.hot, ids).await.expect("commits");
                done += 1;
            }
            done
        }));
        let cold = join_all((0..80).map(|n| async move {
            sleep(Duration::from_millis(50 * n)).await;
            let left = ends.saturating_duration_since(Instant::now());
            // Dropped at the end of the load.
            drop(timeout(left, self.put(&self.cold, [n.to_string(), format!("{n}-b")])).await);
        }));
        let (hot, _) = join(hot, cold).await;
        hot.into_iter().sum()
    }
}

#[tokio::test(start_paused = true)]
async fn slow_or_blocked_collection_slows_no_other() {
    let load = Load::open().await;
    let before = load.hot_commits().await;
    assert!(before > 4_000, "{before}");
    load.server.takes.store(2_000, Ordering::Relaxed);
    let beside_slow = load.hot_commits().await;
    assert!(beside_slow * 10 > before * 9, "{beside_slow} of {before}");
    load.server.takes.store(0, Ordering::Relaxed);
    load.server.is_blocked.store(true, Ordering::Relaxed);
    let beside_blocked = load.hot_commits().await;
    assert!(beside_blocked * 10 > before * 9, "{beside_blocked} of {before}");
}

#[tokio::test(start_paused = true)]
async fn wait_in_the_queue_is_no_time_of_the_attempt() {
    const LONG: Duration = Duration::from_secs(15);
    let config = config().with_group_commit(Some(true));
    assert!(config.attempt_timeout() < LONG);
    let world: World = Setup::default().config(config).open().await;
    world.store.before(|call| match call.writes(is_commit) {
        true => Step::delay(LONG),
        false => Step::pass(),
    });
    let options = Options::default().with_timeout(Some(4 * LONG));
    let put = async |after| {
        sleep(after).await;
        let put = world.domain.run::<_, Error, _>(&options, async |tx| {
            ["a", "b"].into_iter().try_for_each(|id| tx.put(&world.items, id, &Item { n: 1 }))
        });
        put.await.expect("commits").receipt.attempts
    };
    let began = Instant::now();
    // The second transaction waits for the commit of the first one.
    let attempts = join(put(Duration::ZERO), put(Duration::from_secs(1))).await;
    assert_eq!(attempts, (1, 1));
    assert_eq!(began.elapsed().as_secs(), 30);
}

/// The reader validates as in any other process. The writer holds nothing yet.
#[tokio::test(start_paused = true)]
async fn reader_does_not_wait_for_a_stuck_writer() {
    cov_mark::check!(reader_leaves_the_queue);
    let load = Load::open().await;
    let ids = || ["a".to_owned(), "b".to_owned()];
    load.put(&load.cold, ids()).await.expect("commits");
    let barrier = load.domain.barrier(Duration::from_secs(5)).await.expect("applies");
    assert!(barrier.is_complete(), "{barrier:?}");
    load.server.writes_take.store(10_000, Ordering::Relaxed);
    let read = async {
        sleep(Duration::from_millis(50)).await;
        let begun = Instant::now();
        let options = Options::default().with_read_only(true);
        let found = load.domain.run(&options, async |tx| tx.get_many(&load.cold, ids()).await);
        let found = found.await.expect("reads").value;
        assert!(found.iter().all(Option::is_some), "{found:?}");
        begun.elapsed()
    };
    // The writer may reach its deadline.
    let (_, took) = join(load.put(&load.cold, ids()), read).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// A transaction writes only in the run for its group.
///
/// The first run of the closure only reads.
///
/// The commit of the group takes longer than a reader waits.
#[tokio::test(start_paused = true)]
async fn reader_that_writes_in_its_group_commits_once() {
    let load = Load::open().await;
    load.add(1, 0).await.expect("commits");
    load.server.writes_take.store(200, Ordering::Relaxed);
    let later = |millis, work| async move {
        sleep(Duration::from_millis(millis)).await;
        work.await
    };
    let slower = async {
        sleep(Duration::from_millis(100)).await;
        load.server.writes_take.store(2_000, Ordering::Relaxed);
    };
    let all = join_all([
        later(0, load.add(0, 0)),
        later(10, load.add(100, 0)),
        later(20, load.add(-10, 100)),
    ]);
    let (done, ()) = join(all, slower).await;
    let done: Vec<bool> = done.into_iter().map(|done| done.expect("commits")).collect();
    let read = load.domain.reader().verified().get(&load.cold, "x").await.expect("reads");
    assert_eq!(read.as_ref().map(Raw::as_str), Some(r#"{"n":91}"#));
    assert_eq!(done, [true; 3], "each commit is the one that its caller knows");
}

/// A full shard refuses locks on some documents for a while.
#[tokio::test(start_paused = true)]
async fn refused_lock_delays_no_other_member() {
    cov_mark::check!(refused_lock_leaves_group);
    let store = Arc::new(Scripted::new(Bank::slow_store()));
    let bank = Bank::on(store.clone(), 6).await;
    bank.settle().await;
    store.play(|write| match is_lock(write) && &*write.key.id == "0" {
        true => Fate::RefuseWith(Outcome::Rejected("the shard is full".to_owned())),
        false => Fate::Pass,
    });
    let refused = bank.transfer(0, 1, 1);
    let others = async {
        // These transfers queue after the refused one, and so are in one group.
        let transfers = join_all([bank.transfer(2, 3, 1), bank.transfer(4, 5, 1)]);
        let all =
            timeout(Duration::from_secs(1), transfers).await.expect("waits for no other member");
        store.play(|_| Fate::Pass);
        all
    };
    let (refused, others) = join(refused, others).await;
    refused.expect("commits after the refusals end");
    assert!(others.iter().all(Result::is_ok), "{others:?}");
    assert_eq!(bank.balances(6).await, [99, 101, 99, 101, 99, 101]);
}

#[tokio::test(start_paused = true)]
async fn lone_member_learns_why_its_record_is_refused() {
    let store = Arc::new(Scripted::new(Bank::slow_store()));
    let bank = Bank::on(store.clone(), 2).await;
    store.play(|write| match is_commit(write) {
        true => {
            let reason = "strict_dynamic_mapping_exception".to_owned();
            Fate::RefuseWith(Outcome::Invalid(Refusal { kind: RefusalKind::Document, reason }))
        }
        false => Fate::Pass,
    });
    match bank.transfer(0, 1, 1).await {
        Err(Refused::Failed(error)) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("strict_dynamic_mapping"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// The queue learns that a commit outside of groups is applied.
#[tokio::test(start_paused = true)]
async fn commit_outside_groups_delays_no_single_write() {
    let bank = Bank::open(2).await;
    bank.settle().await;
    for _ in 0..3 {
        let options = Options::default().with_lock_mode(LockMode::AtCommitUngrouped);
        let run = bank.domain.run::<_, Error, _>(&options, async |tx| {
            ["0", "1"]
                .iter()
                .try_for_each(|id| tx.put(&bank.accounts, *id, &Account { balance: 1 }))
        });
        run.await.expect("commits");
        let begun = Instant::now();
        bank.add(0, 1).await.expect("commits");
        assert!(begun.elapsed() < Duration::from_millis(20), "{:?}", begun.elapsed());
        bank.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn document_of_evicted_member_is_free_at_once() {
    let store = Arc::new(Scripted::new(Bank::slow_store()));
    let bank = Bank::on(store.clone(), 8).await;
    bank.settle().await;
    let is_late = |write: &Write| {
        !is_lock(write) && &*write.key.id == "3" && writes(write, "\"balance\":101")
    };
    let refuse = || Fate::RefuseWith(Outcome::Rejected("blocked".to_owned()));
    store.play(move |write| match is_lock(write) && &*write.key.id == "0" || is_late(write) {
        true => refuse(),
        false => Fate::Pass,
    });
    let evicted = timeout(Duration::from_millis(60), bank.transfer(0, 1, 1));
    let others = async {
        sleep(Duration::from_millis(100)).await;
        store.play(move |write| if is_late(write) { refuse() } else { Fate::Pass });
        let free = timeout(Duration::from_secs(5), bank.transfer(0, 7, 1)).await;
        store.play(|_| Fate::Pass);
        free.expect("waits for no other commit").expect("commits");
    };
    let ((evicted, stays), ()) = join(join(evicted, bank.transfer(2, 3, 1)), others).await;
    assert!(evicted.is_err(), "the member is refused");
    stays.expect("commits");
}

/// A closure that runs again may use another collection. The group does not wait for that
/// collection.
#[tokio::test(start_paused = true)]
async fn member_that_changes_collections_leaves_its_group() {
    let load = Load::open().await;
    let Load { server, domain, hot, cold } = &load;
    let text = Raw::new("{}");
    let flip = domain.transact::<_, Error, _>(async |tx| {
        tx.put(hot, "f", &Raw::new("{\"on\":1}"))?;
        tx.put(hot, "w", &text)
    });
    let follows = domain.transact::<_, Error, _>(async |tx| {
        let is_on = tx.get(hot, "f").await?.is_some_and(|flag| flag.as_str().contains("on"));
        tx.put(hot, "z", &text)?;
        match is_on {
            true => tx.put(cold, "a", &text),
            false => tx.put(hot, "q", &text),
        }
    });
    let others = async {
        sleep(Duration::from_millis(3)).await;
        server.takes.store(20_000, Ordering::Relaxed);
        for _ in 0..200 {
            let begun = Instant::now();
            load.put(hot, ["a".to_owned(), "b".to_owned()]).await.expect("commits");
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        }
    };
    let first = load.put(hot, ["f".to_owned(), "w".to_owned()]);
    let follows = timeout(Duration::from_secs(10), follows);
    let (first, (flip, (_, ()))) = join(first, join(flip, join(follows, others))).await;
    first.and(flip).expect("commit");
}

/// The second transaction waits for the first. The hot document of the second is free.
#[tokio::test(start_paused = true)]
async fn stuck_document_delays_no_other_index() {
    let load = Load::open().await;
    let both = async |id: &str| {
        let put = load.domain.transact::<_, Error, _>(async |tx| {
            tx.put(&load.cold, "x", &Raw::new("{}"))?;
            tx.put(&load.hot, id, &Raw::new("{}"))
        });
        put.await
    };
    load.server.takes.store(20_000, Ordering::Relaxed);
    let waits = async {
        sleep(Duration::from_millis(20)).await;
        both("b").await
    };
    let stuck = timeout(Duration::from_secs(15), join(both("a"), waits));
    let hot = async {
        sleep(Duration::from_millis(50)).await;
        for _ in 0..100 {
            let begun = Instant::now();
            load.put(&load.hot, ["b".to_owned(), "c".to_owned()]).await.expect("commits");
            assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
        }
    };
    let (stuck, ()) = join(stuck, hot).await;
    assert!(stuck.is_err(), "the cold index is slow");
}

/// The error concerns a document that the transaction does not use.
#[tokio::test(start_paused = true)]
async fn lone_member_learns_that_its_day_is_lost() {
    let store = Arc::new(Scripted::new(Bank::slow_store()));
    let bank = Bank::on(store.clone(), 2).await;
    bank.settle().await;
    let overview = bank.domain.admin().overview().await.expect("tells");
    for partition in overview.partitions {
        store.drop_collection(&partition.name).await.expect("drops");
    }
    match bank.transfer(0, 1, 1).await {
        Err(Refused::Failed(error)) => {
            assert_eq!(error.kind(), ErrorKind::Unknown, "the commit was sent: {error}");
            assert!(error.to_string().contains("is lost"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
