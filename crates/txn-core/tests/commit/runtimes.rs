//! Threads that call a domain on their own, often idle runtimes.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use txn_core::{Config, Error, Raw, Result};

use crate::support::{Setup, World, config};

/// The real time of a request.
const TRIP: Duration = Duration::from_millis(40);

/// Opens a domain on a slow store.
async fn open(config: Config) -> Arc<World<Raw>> {
    let config = config.with_request_batching(Some(true));
    Arc::new(Setup::default().slow(TRIP).config(config).open().await)
}

async fn put(world: &World<Raw>, ids: [&str; 2]) -> Result<()> {
    let text = Raw::new("{\"n\":1}");
    let put = world.domain.transact::<_, Error, _>(async |tx| {
        tx.get_many(&world.items, ids).await?;
        ids.iter().try_for_each(|id| tx.put(&world.items, *id, &text))
    });
    put.await
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("starts")
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("starts")
}

/// Checks that an idle thread delays no later commit.
///
/// Both commits write the same documents.
fn assert_rest_delays_nobody(shop: &Arc<World<Raw>>) {
    let (rests, resting) = channel();
    let (wakes, waking) = channel::<()>();
    let of_thread = shop.clone();
    let thread = std::thread::spawn(move || {
        let runtime = current_thread();
        runtime.block_on(put(&of_thread, ["a", "b"])).expect("commits");
        rests.send(()).expect("continues");
        waking.recv().expect("continues");
    });
    resting.recv().expect("continues");
    let began = Instant::now();
    multi_thread().block_on(put(shop, ["a", "b"])).expect("commits");
    let took = began.elapsed();
    wakes.send(()).expect("continues");
    thread.join().expect("continues");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn commit_is_applied_while_its_caller_is_idle() {
    let runtime = multi_thread();
    assert_rest_delays_nobody(&runtime.block_on(open(config())));
}

#[test]
fn configured_runtime_applies_for_all_callers() {
    let (opens, serves) = (current_thread(), multi_thread());
    let config = config().with_runtime(Some(serves.handle().clone()));
    assert_rest_delays_nobody(&opens.block_on(open(config)));
}

#[test]
fn domain_outlives_the_runtime_it_was_opened_in() {
    let runtime = multi_thread();
    let shop = runtime.block_on(open(config()));
    runtime.block_on(put(&shop, ["a", "b"])).unwrap();
    drop(runtime);
    current_thread().block_on(async {
        put(&shop, ["c", "d"]).await.unwrap();
        put(&shop, ["a", "b"]).await.unwrap();
    });
}

/// A handler blocks every thread of the runtime that opened the domain.
#[test]
fn blocked_runtime_delays_no_caller_of_another() {
    let opened_in = multi_thread();
    let shop = opened_in.block_on(open(config()));
    let (wakes, waking) = channel::<()>();
    let blocked = opened_in.spawn(async move { waking.recv() });
    multi_thread().block_on(async {
        for _ in 0..2 {
            put(&shop, ["a", "b"]).await.expect("commits");
        }
    });
    wakes.send(()).expect("still blocked");
    opened_in.block_on(blocked).expect("ends").expect("was blocked until now");
}

/// Callers do not depend on an idle runtime whose callers timed out.
#[test]
fn callers_that_time_out_stop_no_request() {
    for opens in [current_thread(), multi_thread()] {
        let shop = opens.block_on(open(config()));
        let (wakes, waking) = channel::<()>();
        let of_thread = shop.clone();
        let (rests, resting) = channel();
        let thread = std::thread::spawn(move || {
            let runtime = current_thread();
            runtime.block_on(async {
                let puts = ["a", "b", "c", "d", "e", "f"].map(|id| put(&of_thread, [id, "z"]));
                let all = futures::future::join_all(puts);
                let _ = tokio::time::timeout(TRIP * 3 / 2, all).await;
            });
            rests.send(()).unwrap();
            waking.recv().unwrap();
        });
        resting.recv().unwrap();
        let other = multi_thread();
        let began = Instant::now();
        for _ in 0..4 {
            other.block_on(put(&shop, ["x", "y"])).unwrap();
        }
        let took = began.elapsed();
        wakes.send(()).unwrap();
        thread.join().unwrap();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

/// A runtime that ends before the apply leaves no hand-off behind.
#[test]
fn ended_runtime_leaves_no_handoff() {
    let runtime = multi_thread();
    let config = config().with_group_commit(Some(true)).with_timeout(Duration::from_secs(10));
    let shop = runtime.block_on(open(config));
    let other = multi_thread();
    other.block_on(put(&shop, ["a", "b"])).expect("commits");
    drop(other);
    runtime.block_on(async {
        let text = Raw::new("{\"n\":2}");
        let put = shop.domain.transact::<_, Error, _>(async |tx| tx.put(&shop.items, "a", &text));
        put.await.expect("commits");
    });
}
