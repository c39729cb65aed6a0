//! More transactions than `max_concurrent_transactions`, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use txn_core::clock::Entropy;
use txn_core::store::{StoreError, StoreErrorKind};
use txn_core::{
    Collection, Domain, Error, ErrorKind, LockMode, Options, Raw, ReadMode, Result, WaitFor,
};
use txn_sim::{Scripted, Step};

use crate::support::{Dice, Setup, World, config};

async fn open(running: usize) -> (Domain, Collection<Raw>) {
    let config =
        config().with_max_concurrent_transactions(running).with_timeout(Duration::from_secs(4));
    let World { domain, items, .. } = Setup::default().config(config).open().await;
    (domain, items)
}

#[tokio::test(start_paused = true)]
async fn overload_is_refused_early_and_the_rest_commits() {
    cov_mark::check!(waited_for_a_place_in_vain);
    let (domain, things) = open(2).await;
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let began = Instant::now();
    let results: Vec<Result<()>> = join_all((0..40).map(|n| {
        let (domain, things, running, most) = (&domain, &things, &running, &most);
        async move {
            let closure = async |tx: &txn_core::Transaction| {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                sleep(Duration::from_millis(300)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                tx.put(things, n.to_string(), &Raw::new("{}"))
            };
            domain.transact::<_, Error, _>(closure).await
        }
    }))
    .await;
    assert_eq!(most.into_inner(), 2);
    let done = results.iter().filter(|result| result.is_ok()).count();
    // A transaction waits for a quarter of its timeout, 1 s. Four rounds of two begin in this time.
    assert_eq!(done, 8, "{results:?}");
    let refused = results.iter().filter_map(|result| result.as_ref().err());
    assert!(
        refused
            .clone()
            .all(|error| error.kind() == ErrorKind::Overloaded && error.kind().is_transient())
    );
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn full_wait_queue_refuses_at_once() {
    cov_mark::check!(too_many_wait_already);
    let (domain, things) = open(1).await;
    let began = Instant::now();
    let refused_at_once = AtomicUsize::new(0);
    join_all((0..30).map(|_| {
        let (domain, things, refused) = (&domain, &things, &refused_at_once);
        async move {
            let result = domain
                .transact::<_, Error, _>(async |tx| {
                    sleep(Duration::from_secs(3)).await;
                    tx.get(things, "x").await.map(drop)
                })
                .await;
            if result.is_err() && began.elapsed() < Duration::from_millis(500) {
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }))
    .await;
    // Of 30 transactions, one runs and sixteen wait.
    assert_eq!(refused_at_once.into_inner(), 13);
}

#[tokio::test(start_paused = true)]
async fn nested_transaction_needs_no_permit() {
    let (domain, things) = open(1).await;
    let image = Raw::new("{}");
    let outer = domain.transact::<_, Error, _>(async |tx| {
        domain.transact::<_, Error, _>(async |inner| inner.put(&things, "inner", &image)).await?;
        tx.put(&things, "outer", &image)
    });
    outer.await.expect("commits");
    let found = domain.reader().get_many(&things, ["inner", "outer"]).await.expect("reads");
    assert!(found.iter().all(Option::is_some));
}

/// A request takes 0.1 to 5 s, and one of three has no answer.
fn overloaded(dice: &Dice) -> Step {
    let error = StoreError::new(StoreErrorKind::Unavailable, "no answer in time");
    match dice.next_u64() % 6 {
        0 => Step::delay(Duration::from_secs(5)).fail(error),
        1 => Step::pass().fail(error),
        _ => Step::delay(Duration::from_millis(100 + dice.next_u64() % 4_900)),
    }
}

fn any_options(dice: &Dice) -> Options {
    let one_of = |n: u64| dice.next_u64().is_multiple_of(n);
    Options::default()
        .with_wait_for(if one_of(2) { WaitFor::Apply } else { WaitFor::Commit })
        .with_lock_mode(if one_of(5) { LockMode::AtRead } else { LockMode::AtCommit })
        .with_read_mode(if one_of(8) { ReadMode::Lock } else { ReadMode::Validate })
}

#[tokio::test(start_paused = true)]
async fn transactions_end_by_their_deadlines() {
    let timeout = Duration::from_secs(10);
    let World { memory, .. } = Setup::default().open::<Raw>().await;
    let (store, dice) = (Arc::new(Scripted::new(memory.clone())), Dice::new(7));
    let config = config()
        .with_timeout(timeout)
        .with_lease(Duration::from_secs(2))
        .with_group_commit(Some(true))
        .with_request_batching(Some(true));
    let setup = Setup::on(memory).below(store.clone()).config(config);
    let World { domain, items, .. } = setup.open::<Raw>().await;
    let of_calls = dice.clone();
    store.before(move |_| overloaded(&of_calls));
    let longest = join_all((0..100).map(|_| async {
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            let ids = [0; 3].map(|_| format!("{}", dice.next_u64() % 20));
            let began = Instant::now();
            let options = any_options(&dice);
            let run = domain.run::<_, Error, _>(&options, async |tx| {
                for id in &ids {
                    tx.get(&items, id.as_str()).await?;
                    tx.put(&items, id.as_str(), &Raw::new("{}"))?;
                }
                Ok(())
            });
            let _ended = run.await;
            longest = longest.max(began.elapsed());
        }
        longest
    }));
    let longest = longest.await.into_iter().max();
    assert!(longest < Some(timeout + Duration::from_secs(1)), "{longest:?}");
    assert!(longest > Some(timeout), "the store was not overloaded: {longest:?}");
}
