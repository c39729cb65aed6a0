//! Locks on a faulty store, with cancelled callers and killed processes.

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::MemoryStore;
use txn_core::{Collection, Typed};
use txn_fixtures::process::Process;
use txn_lock::{Heartbeat, LockError, LockName, LockService};
use txn_sim::{FaultPlan, FaultStore, Scroll};

use crate::scenarios::{PATIENCE, World};

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Book {
    /// The tokens of all writes, in the order of the writes.
    tokens: Vec<u64>,
}

/// Shorter than some answers of the store, so that leases expire.
const LEASE: Duration = Duration::from_secs(2);

fn rough(seed: u64) -> (World, Arc<FaultStore>) {
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), FaultPlan::rough(seed)));
    store.set_enabled(false);
    (World { store: store.clone(), name: "test".to_owned(), lease: LEASE }, store)
}

/// Writes the token of a lock into a document, under a fence.
async fn write(world: &World, service: &LockService) -> Result<u64, LockError> {
    let domain = world.domain().await;
    let books: Collection<Typed<Book>> = domain.collection("books").await?;
    service
        .do_in_lock("test", "book", PATIENCE, async |lock| {
            let token = lock.token();
            lock.fenced()
                .transact::<_, LockError, _>(async |tx| {
                    let mut book = tx.get(&books, "one").await?.unwrap_or_default();
                    book.tokens.push(token);
                    Ok(tx.put(&books, "one", &book)?)
                })
                .await?;
            Ok(token)
        })
        .await
}

/// Whether an error is legitimate on a faulty store.
///
/// Leases expire on such a store, and some of its answers are too late.
fn may_be(error: &LockError) -> bool {
    use txn_core::ErrorKind::{Conflict, Unavailable, Unknown};
    match error {
        LockError::Lost { .. } | LockError::Timeout(_) => true,
        LockError::Engine(error) => matches!(error.kind(), Conflict | Unavailable | Unknown),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_never_decrease_under_faults_and_cancels() {
    for seed in 0..4 {
        let (world, faults) = rough(seed);
        let world = Arc::new(world);
        let domain = world.domain().await;
        let books = domain.create_collection::<Typed<Book>>("books", None).await.expect("opens");
        let services = [world.service().await, world.service().await];
        faults.set_enabled(true);
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..6_u64 {
            let (world, service) = (world.clone(), services[(worker % 2) as usize].clone());
            tasks.spawn(async move {
                let mut written = Vec::new();
                for round in 0..6_u64 {
                    // Cancels a third of the calls, at any point of their progress.
                    let patience = match (worker + round) % 3 {
                        0 => Duration::from_micros(
                            (seed * 7919 + worker * 131 + round * 17) % 20_000,
                        ),
                        _ => PATIENCE,
                    };
                    match tokio::time::timeout(patience, write(&world, &service)).await {
                        Ok(Ok(token)) => written.push(token),
                        Ok(Err(error)) => assert!(may_be(&error), "seed {seed}: {error}"),
                        Err(_dropped) => {}
                    }
                }
                written
            });
        }
        let acknowledged: Vec<u64> = tasks.join_all().await.into_iter().flatten().collect();
        faults.set_enabled(false);
        faults.settle().await;
        assert!(faults.injected().total() > 0);
        // After all cancelled calls and unknown outcomes the lock is free.
        let last = write(&world, &services[0]).await.expect("granted");
        let book =
            domain.reader().verified().get(&books, "one").await.expect("reads").expect("written");
        let mut sorted = book.tokens.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, book.tokens, "seed {seed}: a smaller token wrote after a larger one");
        assert!(acknowledged.iter().all(|token| book.tokens.contains(token)), "seed {seed}");
        assert_eq!(book.tokens.last(), Some(&last));
        assert!(!acknowledged.is_empty(), "seed {seed}: nothing was tried");
        for service in services {
            assert!(service.shutdown(PATIENCE).await, "seed {seed}");
        }
        let name = LockName::new("test", "book").expect("a name");
        let lock =
            world.service().await.repository().find(&name).await.expect("reads").expect("is there");
        assert_eq!(lock.holder, None, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_killed_process_is_taken_over() {
    let (world, _faults) = rough(0);
    let domain = world.domain().await;
    let books = domain.create_collection::<Typed<Book>>("books", None).await.expect("opens");
    let survivor = world.service().await;
    for killed_after in [0, 300, 700, 1_500, 3_000, 8_000] {
        let process = Process::new();
        process
            .run(async {
                let domain = world.domain().await;
                let service = LockService::open(&domain, world.config()).await.expect("opens");
                let endless = async {
                    loop {
                        write(&world, &service).await.expect("granted");
                    }
                };
                let moment = Duration::from_micros(killed_after);
                let _ = tokio::time::timeout(moment, endless).await;
                // The process is killed, so it releases nothing.
                std::mem::forget(service);
            })
            .await;
        drop(process);
        write(&world, &survivor).await.expect("taken over");
    }
    let book =
        domain.reader().verified().get(&books, "one").await.expect("reads").expect("written");
    assert!(book.tokens.is_sorted(), "{:?}", book.tokens);
    // The last killed process may have left a lock that no other process has requested since.
    survivor.reap().await.expect("reaps");
    assert!(survivor.list().await.expect("lists").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_thread_heartbeat_ends_with_its_runtime() {
    let (world, _faults) = rough(0);
    let process = Process::new();
    process
        .run(async {
            let domain = world.domain().await;
            let config = world.config().with_heartbeat(Heartbeat::OwnThread);
            let service = LockService::open(&domain, config).await.expect("opens");
            let guard = service.lock("test", "a", PATIENCE).await.expect("granted");
            std::mem::forget((guard, service));
        })
        .await;
    // The runtime of the process is dropped, and the thread of the library continues.
    drop(process);
    let survivor = world.service().await;
    let guard = survivor.lock("test", "a", PATIENCE).await.expect("taken over");
    guard.unlock().await.expect("unlocks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_callers_are_granted_in_arrival_order() {
    let (world, _faults) = rough(0);
    let service = world.service().await;
    let first = service.lock("test", "a", PATIENCE).await.expect("granted");
    let (order, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..5 {
        let mut lock = Box::pin({
            let (service, order) = (service.clone(), order.clone());
            async move {
                let guard = service.lock("test", "a", PATIENCE).await.expect("granted");
                order.send(caller).expect("heard");
                guard.unlock().await.expect("unlocks");
            }
        });
        // The first poll puts the caller into the queue.
        assert!(futures::poll!(&mut lock).is_pending());
        tasks.spawn(lock);
    }
    drop(order);
    first.unlock().await.expect("unlocks");
    tasks.join_all().await;
    let mut heard = Vec::new();
    while let Some(caller) = arrived.recv().await {
        heard.push(caller);
    }
    assert_eq!(heard, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn waiting_callers_beyond_the_limit_are_refused() {
    let (world, _faults) = rough(0);
    let domain = world.domain().await;
    let service =
        LockService::open(&domain, world.config().with_max_waiting(1)).await.expect("opens");
    let held = service.lock("test", "a", PATIENCE).await.expect("granted");
    let mut waiting = Box::pin(service.lock("test", "a", PATIENCE));
    assert!(futures::poll!(&mut waiting).is_pending());
    let error = service.lock("test", "b", PATIENCE).await.expect_err("too many");
    assert!(matches!(error, LockError::Busy { waiting: 1 }), "{error}");
    held.unlock().await.expect("unlocks");
    waiting.await.expect("granted").unlock().await.expect("unlocks");
    for config in [
        world.config().with_lease(Duration::ZERO),
        world.config().with_longest_pause(Duration::ZERO),
    ] {
        let refused = LockService::open(&domain, config).await.expect_err("cannot work");
        assert!(matches!(refused, LockError::InvalidConfig(_)), "{refused}");
    }
}

#[tokio::test]
async fn queued_caller_learns_the_holder() {
    let (world, _faults) = rough(0);
    let (one, two) = (world.service().await, world.service().await);
    let guard = one.lock("test", "a", PATIENCE).await.expect("granted");
    let brief = Duration::from_millis(100);
    let waiting = (0..3).map(|_| two.lock("test", "a", brief));
    for refused in futures::future::join_all(waiting).await {
        let Err(LockError::Timeout(timeout)) = refused else { panic!("{refused:?}") };
        assert_eq!(timeout.holder.map(|holder| holder.instance), Some(one.instance()));
    }
    guard.unlock().await.expect("unlocks");
}

#[tokio::test]
async fn lost_page_hides_no_lock() {
    let store = Arc::new(Scroll::new(Arc::new(MemoryStore::new())));
    let world = World { store: store.clone(), name: "test".to_owned(), lease: LEASE };
    let service = world.service().await;
    let ids = ["a", "b", "c", "d", "e"];
    let mut held = Vec::new();
    for id in ids {
        held.push(service.lock("test", id, PATIENCE).await.expect("granted"));
    }
    store.lose(1);
    let listed = service.list().await.expect("one page was lost, and the store is there");
    assert_eq!(store.left_to_lose(), 0, "a page was lost");
    assert_eq!(listed.iter().map(|lock| &*lock.id).collect::<Vec<_>>(), ids);
}

/// The next holder learns whether the previous holder released the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreleased_lock_is_reported_as_abandoned() {
    let (world, _faults) = rough(0);
    let process = Process::new();
    let guard = process
        .run(async { world.service().await.lock("test", "a", PATIENCE).await.expect("granted") })
        .await;
    assert!(!guard.was_abandoned(), "it had no holder before");
    std::mem::forget(guard);
    drop(process);
    let (one, two) = (world.service().await, world.service().await);
    let taken = async |service: &LockService| {
        let guard = service.lock("test", "a", PATIENCE).await.expect("granted");
        let abandoned = guard.was_abandoned();
        (guard, abandoned)
    };
    let (guard, abandoned) = taken(&one).await;
    assert!(abandoned, "its holder died");
    guard.unlock().await.expect("unlocks");
    let (guard, abandoned) = taken(&two).await;
    assert!(!abandoned, "it was given back");
    drop(guard);
    let (guard, abandoned) = taken(&one).await;
    assert!(!abandoned, "a guard that is dropped gives it back");
    two.break_lock("test", "a").await.expect("broken");
    guard.unlock().await.expect_err("it was broken");
    let (guard, abandoned) = taken(&two).await;
    assert!(abandoned, "it was broken");
    // A shutdown takes the lock from a guard that is still in use.
    assert!(two.shutdown(PATIENCE).await);
    drop(guard);
    let (guard, abandoned) = taken(&one).await;
    assert!(abandoned, "it was lost by a shutdown");
    // A caller without a grant does not change the flag.
    let brief = one.lock("test", "a", Duration::from_millis(10)).await;
    brief.expect_err("it is held");
    guard.unlock().await.expect("unlocks");
    assert!(!taken(&one).await.1, "it was given back");
}

/// The heartbeat continues while work blocks the threads of the application.
#[tokio::test]
async fn blocked_runtime_keeps_its_locks() {
    let lease = Duration::from_secs(1);
    let store = Arc::new(MemoryStore::new());
    let world = World { store, name: "test".to_owned(), lease };
    let config = world.config().with_heartbeat(Heartbeat::OwnThread);
    let service = LockService::open(&world.domain().await, config).await.expect("opens");
    let guard = service.lock("test", "a", PATIENCE).await.expect("granted");
    let (store, name) = (world.store.clone(), world.name.clone());
    let others = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let world = World { store, name, lease };
            let service = world.service().await;
            service.lock("test", "a", lease * 4).await.map(|guard| guard.token())
        })
    });
    // The sleep blocks the only thread of this runtime.
    std::thread::sleep(lease * 4);
    let refused = others.join().expect("it ends").expect_err("it is held");
    assert!(matches!(refused, LockError::Timeout(_)), "{refused}");
    assert!(!guard.is_lost());
    guard.unlock().await.expect("it was never lost");
}
