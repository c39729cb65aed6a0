//! Fairness between processes that want one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::store::MemoryStore;
use txn_lock::{LockName, LockService};

use crate::scenarios::{PATIENCE, World};

/// The maximum number of consecutive grants while another process waits.
///
/// The documentation promises this number.
const MOST_IN_A_ROW: usize = 8;

fn world() -> World {
    let store = Arc::new(MemoryStore::new());
    World { store, name: "test".to_owned(), lease: Duration::from_secs(10) }
}

/// The tokens of all grants, each with the process of the grant.
type Grants = Arc<Mutex<Vec<(u64, usize)>>>;

/// Spawns callers that take a lock repeatedly until `enough` grants.
fn callers(
    tasks: &mut tokio::task::JoinSet<()>,
    service: &LockService,
    (process, callers): (usize, usize),
    (grants, enough): (&Grants, usize),
) {
    for _ in 0..callers {
        let (service, grants) = (service.clone(), grants.clone());
        tasks.spawn(async move {
            while grants.lock().len() < enough {
                let guard = service.lock("test", "hot", PATIENCE).await.expect("granted");
                grants.lock().push((guard.token(), process));
                guard.unlock().await.expect("unlocks");
            }
        });
    }
}

/// The largest number of consecutive grants of one process.
fn longest_row(grants: &[(u64, usize)], of: usize) -> usize {
    let rows = grants.chunk_by(|a, b| a.1 == b.1).filter(|row| row[0].1 == of);
    rows.map(<[_]>::len).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_do_not_starve_another_process() {
    let world = world();
    // A process with slow polls keeps its reservation, too.
    let config = world.config().with_longest_pause(Duration::from_secs(5));
    let service =
        async || LockService::open(&world.domain().await, config.clone()).await.expect("opens");
    let (many, one, third) = (service().await, service().await, service().await);
    let grants = Grants::default();
    let mut tasks = tokio::task::JoinSet::new();
    for (at, (service, count)) in [(&many, 4), (&one, 1), (&third, 2)].into_iter().enumerate() {
        callers(&mut tasks, service, (at, count), (&grants, 600));
    }
    tasks.join_all().await;
    let mut grants = grants.lock().clone();
    grants.sort_unstable();
    // Before each process has found the lock held, and after the first process ends, a process may
    // have no waiter.
    let (first, last) = (100, 500);
    let middle = &grants[first..last];
    for process in 0..3 {
        let row = longest_row(middle, process);
        assert!(row <= MOST_IN_A_ROW, "process {process} had it {row} times in a row");
        let times = middle.iter().filter(|(_, of)| *of == process).count();
        // A single caller takes the lock once per reservation, several callers up to eight times.
        assert!(
            times >= (last - first) / (2 * MOST_IN_A_ROW + 1),
            "{process} had it {times} times"
        );
    }
    let name = LockName::new("test", "hot").expect("a name");
    let until = std::time::Instant::now() + PATIENCE;
    while !many.repository().find(&name).await.expect("reads").expect("there").waiting.is_empty() {
        assert!(std::time::Instant::now() < until, "a caller still waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Callers that give up and processes that die block no waiting process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_reservation_passes_to_the_next_process() {
    let world = world();
    let (one, two, three) = (world.service().await, world.service().await, world.service().await);
    let name = LockName::new("test", "a").expect("a name");
    let waiting = async || {
        let lock = one.repository().find(&name).await.expect("reads").expect("there");
        lock.waiting.into_iter().map(|waiter| waiter.instance).collect::<Vec<_>>()
    };
    let guard = one.lock("test", "a", PATIENCE).await.expect("granted");
    two.lock("test", "a", Duration::from_millis(50)).await.expect_err("it is held");
    let until = std::time::Instant::now() + PATIENCE;
    while !waiting().await.is_empty() {
        assert!(std::time::Instant::now() < until, "it waits still");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A process that dies while it waits is passed over.
    let process = txn_fixtures::process::Process::new();
    process
        .run(async {
            let service = world.service().await;
            let mut lock = Box::pin({
                let service = service.clone();
                async move { service.lock("test", "a", PATIENCE).await }
            });
            while waiting().await.is_empty() {
                let _ = tokio::time::timeout(Duration::from_millis(5), &mut lock).await;
            }
            std::mem::forget((lock, service));
        })
        .await;
    drop(process);
    let granted = AtomicUsize::new(0);
    let third = async {
        let guard = three.lock("test", "a", PATIENCE).await.expect("granted");
        granted.fetch_add(1, Ordering::AcqRel);
        guard.unlock().await.expect("unlocks");
    };
    let first = async {
        while waiting().await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        guard.unlock().await.expect("unlocks");
        // The lock is reserved for another process, and `try_lock` does not wait.
        assert!(one.try_lock("test", "a").await.expect("looks").is_none());
    };
    futures::join!(third, first);
    assert_eq!(granted.load(Ordering::Acquire), 1);
    assert!(waiting().await.is_empty());
    one.lock("test", "a", PATIENCE).await.expect("granted").unlock().await.expect("unlocks");
}
