//! Requests that are not due yet.

use std::sync::Arc;
use std::time::Duration;

use txn_lock::instance::wall_ms;
use txn_requests::{RequestError, Requests, State};
use txn_sim::CountingStore;

use super::{PATIENCE, World};

/// A request waits for its time. It delays no other request, and can be cancelled.
pub(crate) async fn request_is_not_executed_before_its_time(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = world.requests().await;
    let due_ms = wall_ms(&domain) + 1_500;
    let late = world.transfer("alice", "bob", 1).with_not_before_ms(due_ms);
    let never = world.transfer("alice", "bob", 2).with_not_before_ms(due_ms + 86_400_000);
    let refused = requests.execute(&late, "late").await.expect_err("not due");
    assert!(matches!(refused, RequestError::Invalid(_)), "{refused}");
    requests.submit(&late, "late").await.expect("stored");
    requests.submit(&never, "never").await.expect("stored");
    let processor = requests.start(None);
    let now = world.transfer("alice", "bob", 10).with_not_before_ms(1);
    requests.submit(&now, "now").await.expect("stored");
    requests.wait("now", PATIENCE).await.expect("committed");
    let status = requests.status("late").await.expect("known");
    // The check is worthless if the request is due by now.
    assert!(status.state == State::Created || wall_ms(&domain) >= due_ms, "{status:?}");
    let status = requests.wait("late", PATIENCE).await.expect("committed");
    assert!(status.times.committed_ms.is_some_and(|at| at >= due_ms), "{status:?}");
    assert_eq!(world.balance(&domain, "bob").await, 11);
    let stuck = requests.stuck(Duration::ZERO).await.expect("looks");
    assert!(stuck.iter().all(|(status, _)| status.id != "never"), "{stuck:?}");
    let status = requests.cancel("never", "no longer wanted").await.expect("cancels");
    assert!(matches!(status.state, State::RolledBack | State::Terminating), "{status:?}");
    assert!(processor.stop(PATIENCE).await);
}

/// Polls read no request of the far future.
///
/// Such requests do not count as open.
pub(crate) async fn far_requests_are_not_read(world: &World) {
    let counting = Arc::new(CountingStore::new(world.store.clone()));
    let world = World { store: counting.clone(), name: world.name.clone(), lease: world.lease };
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = Requests::open(&domain, world.config().with_max_open(10)).await.expect("opens");
    let far_ms = wall_ms(&domain) + 86_400_000;
    let late = world.transfer("alice", "bob", 1).with_not_before_ms(far_ms);
    let ids: Vec<String> = (0..300).map(|at| format!("late-{at}")).collect();
    for ids in ids.chunks(100) {
        let submit = ids.iter().map(|id| requests.submit(&late, id));
        for submitted in futures::future::join_all(submit).await {
            assert_eq!(submitted.expect("stored").state, State::Created);
        }
    }
    let report = domain.barrier(PATIENCE).await.expect("looks");
    report.into_result().expect("all is applied");
    let processor = requests.start(None);
    requests.submit(&world.transfer("alice", "bob", 10), "due").await.expect("stored");
    assert!(requests.wait("due", PATIENCE).await.expect("decided").state.is_committed());
    let before = counting.counts();
    while counting.counts().since(before).scan < 40 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let polls = counting.counts().since(before);
    let documents = polls.documents_read + polls.documents_scanned;
    assert!(documents < 20 * polls.scan, "{polls}");
    assert_eq!(world.balance(&domain, "bob").await, 10);
    assert!(processor.stop(PATIENCE).await);
}
