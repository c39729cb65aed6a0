//! Processes that are paused past their lease, and woken.
//!
//! In the meantime other processes write the documents again. An uncommitted transaction starts
//! over, and a committed one happened once.

use txn_fixtures::coordinator::{Task, Word};
use txn_fixtures::fixture::Fixture;
use txn_fixtures::wire;
use txn_testkit::proxy::{Matching, Point};

use super::Stage;

async fn paused(stage: &mut Stage, what: &str, at: Matching, point: Point, committed: bool) {
    let context = format!("paused {what}");
    let hold = stage.proxy.hold(at, point);
    let mut process = stage.start(Task::Transfer, 500);
    process.reaches(&hold).await;
    process.pause().await;
    // Another process takes it for dead, decides the transaction, and continues.
    stage.rewrite().await;
    hold.release();
    process.resume();
    let said = process.ends().await;
    let attempts = match said[..] {
        [Word::Committed(attempts), Word::Drained(true)] => attempts,
        _ => panic!("{context}: it said {said:?}"),
    };
    // A slow server may cost attempts before the held one. The audit counts the transfers.
    assert!(committed || attempts > 1, "{context}: the aborted attempt was the last");
    assert_eq!(process.attempts().len(), usize::try_from(attempts).expect("a few"), "{context}");
    for (n, tid) in process.attempts().to_vec().into_iter().enumerate() {
        let last = n + 1 == process.attempts().len();
        assert_eq!(stage.is_committed(tid).await, last, "{context}: attempt {n}");
    }
    stage.happened += 1;
    stage.audit(&context).await;
}

pub(crate) async fn past_the_lease(fixture: &Fixture) {
    let stage = &mut Stage::on(fixture).await;
    let (before, after) = (Point::Before, Point::After);
    paused(stage, "before the locks", wire::locks(), before, false).await;
    paused(stage, "with the locks taken", wire::locks(), after, false).await;
    paused(stage, "with the reads validated", wire::validates(), after, false).await;
    paused(stage, "before the commit", wire::commits(), before, false).await;
    paused(stage, "with the commit carried out", wire::commits(), after, true).await;
    paused(stage, "before the apply", wire::applies(), before, true).await;
    paused(stage, "with the apply carried out", wire::applies(), after, true).await;
    paused(stage, "before the end", wire::finishes(), before, true).await;
}
