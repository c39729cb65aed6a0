//! Requests that are not due yet.

use std::time::Duration;

use txn_lock::instance::wall_ms;
use txn_requests::{RequestError, State};

use super::{PATIENCE, World};

/// A request waits for its time. It delays no other request, and can be cancelled.
pub(crate) async fn request_is_not_executed_before_its_time(world: &World) {
    let domain = world.fund(&[("alice", 100), ("bob", 0)]).await;
    let requests = world.requests().await;
    let due_ms = wall_ms(&domain) + 1_500;
    let late = world.transfer("alice", "bob", 1).with_not_before_ms(due_ms);
    let never = world.transfer("alice", "bob", 2).with_not_before_ms(u64::MAX);
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
