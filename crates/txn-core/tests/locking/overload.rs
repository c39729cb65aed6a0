//! More transactions than `max_concurrent_transactions`, in virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use txn_core::{Collection, Domain, Error, ErrorKind, Raw, Result};

use crate::support::{Setup, World, config};

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
