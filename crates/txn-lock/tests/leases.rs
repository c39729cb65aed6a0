//! Leases of clients, beside the locks of processes.

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::MemoryStore;
use txn_lock::{LeaseRequest, Leases, LockError, LockName};

use crate::scenarios::{PATIENCE, World};

/// Long enough for each test without a takeover.
const LONG: Duration = Duration::from_secs(600);

/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(100);

fn world() -> World {
    let store = Arc::new(MemoryStore::new());
    World { store, name: "test".to_owned(), lease: Duration::from_secs(10) }
}

fn name() -> LockName {
    LockName::new("test", "a").expect("a name")
}

fn request(owner: &str, lease: Duration) -> LeaseRequest {
    LeaseRequest::new(name(), owner, lease).expect("a request")
}

async fn leases(world: &World) -> Leases {
    Leases::open(&world.domain().await).await.expect("opens")
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Lost { .. }))
}

#[tokio::test]
async fn any_process_renews_and_releases_a_lease() {
    let world = world();
    let (one, two) = (leases(&world).await, leases(&world).await);
    let lease = one.acquire(&request("a", LONG), Duration::ZERO).await.expect("granted");
    let held = two.acquire(&request("b", LONG), Duration::ZERO).await.expect_err("is held");
    let LockError::Timeout(timeout) = held else { panic!("{held:?}") };
    assert_eq!(timeout.holder.map(|holder| holder.name).as_deref(), Some("a"));
    two.renew(&name(), lease.token).await.expect("renews");
    assert!(!two.release(&name(), lease.token + 1).await.expect("asks"));
    assert!(two.release(&name(), lease.token).await.expect("releases"));
    assert!(is_lost(one.renew(&name(), lease.token).await));
    let next = one.acquire(&request("b", LONG), Duration::ZERO).await.expect("granted");
    assert!(next.token > lease.token && !next.was_abandoned);
}

#[tokio::test]
async fn repeated_grant_is_the_same_lease() {
    let leases = leases(&world()).await;
    let named = request("a", LONG).with_grant(Some("one".to_owned()));
    let first = leases.acquire(&named, Duration::ZERO).await.expect("granted");
    assert_eq!(leases.acquire(&named, Duration::ZERO).await.expect("granted"), first);
    assert!(leases.release(&name(), first.token).await.expect("releases"));
    let second = leases.acquire(&named, Duration::ZERO).await.expect("granted");
    assert!(second.token > first.token);
}

#[tokio::test]
async fn expired_lease_is_taken_over_by_a_process() {
    let world = world();
    let (leases, service) = (leases(&world).await, world.service().await);
    let lost = leases.acquire(&request("a", SHORT), Duration::ZERO).await.expect("granted");
    let guard = service.lock("test", "a", PATIENCE).await.expect("granted");
    assert!(guard.was_abandoned() && guard.token() > lost.token);
    assert!(is_lost(leases.renew(&name(), lost.token).await));
    // A lock of a process is no lease.
    assert!(is_lost(leases.renew(&name(), guard.token()).await));
    assert!(!leases.release(&name(), guard.token()).await.expect("asks"));
    guard.unlock().await.expect("releases");
    assert!(service.shutdown(PATIENCE).await);
}

#[tokio::test]
async fn renewed_lease_excludes_a_process() {
    let world = world();
    let (leases, service) = (leases(&world).await, world.service().await);
    let lease = leases.acquire(&request("a", LONG), Duration::ZERO).await.expect("granted");
    assert!(service.try_lock("test", "a").await.expect("asks").is_none());
    assert_eq!(service.list().await.expect("lists").len(), 1);
    assert!(service.break_lock("test", "a").await.expect("breaks").is_some());
    assert!(is_lost(leases.renew(&name(), lease.token).await));
    assert!(service.shutdown(PATIENCE).await);
}

#[tokio::test]
async fn expired_leases_leave_no_instance() {
    let world = world();
    let leases = leases(&world).await;
    leases.acquire(&request("a", SHORT), Duration::ZERO).await.expect("granted");
    let lease = leases.acquire(&request("b", LONG), PATIENCE).await.expect("granted");
    assert!(lease.was_abandoned);
    assert!(leases.release(&name(), lease.token).await.expect("releases"));
    let domain = world.domain().await;
    let collection = domain.collection_name("locks");
    let filter = txn_core::store::Filter::any_of("kind", ["instance"]);
    let left = txn_core::scan::candidates(&domain, &collection, filter, 10).await.expect("scans");
    assert!(left.iter().all(|id| !id.starts_with("instance:lease-")), "{left:?}");
}

/// A process dies while it waits for the lock. Requests that do not wait pass over it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_process_blocks_no_request_without_a_wait() {
    let world = world();
    let leases = leases(&world).await;
    let lease = leases.acquire(&request("a", LONG), Duration::ZERO).await.expect("granted");
    let process = txn_fixtures::process::Process::new();
    process
        .run(async {
            let service = world.service().await;
            let mut lock = Box::pin({
                let service = service.clone();
                async move { service.lock("test", "a", PATIENCE).await }
            });
            let waiting = async || {
                let lock = leases.repository().find(&name()).await.expect("reads");
                lock.expect("there").waiting.len()
            };
            while waiting().await == 0 {
                let _ = tokio::time::timeout(Duration::from_millis(5), &mut lock).await;
            }
            std::mem::forget((lock, service));
        })
        .await;
    drop(process);
    assert!(leases.release(&name(), lease.token).await.expect("releases"));
    let until = std::time::Instant::now() + PATIENCE;
    while let Err(error) = leases.acquire(&request("b", LONG), Duration::ZERO).await {
        assert!(matches!(error, LockError::Timeout(_)), "{error}");
        assert!(std::time::Instant::now() < until, "the dead process has the lock");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn transaction_depends_on_its_lease() {
    let world = world();
    let leases = leases(&world).await;
    let domain = world.domain().await;
    let lease = leases.acquire(&request("a", LONG), Duration::ZERO).await.expect("granted");
    let check =
        async |token: u64| domain.transact(async |tx| leases.check(tx, &name(), token).await).await;
    check(lease.token).await.expect("is held");
    assert!(is_lost(check(lease.token + 1).await));
    leases.release(&name(), lease.token).await.expect("releases");
    assert!(is_lost(check(lease.token).await));
}

#[test]
fn unfit_leases_are_refused() {
    for (owner, lease) in [("", LONG), ("a\n", LONG), ("a", SHORT / 2), ("a", LONG * 7)] {
        LeaseRequest::new(name(), owner, lease).expect_err("refused");
    }
}
