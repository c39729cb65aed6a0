//! Paused past the lease while others write the documents again, and woken: what was not committed starts over, what
//! was committed happened once.

use txn_fixtures::coordinator::{Task, Word};
use txn_fixtures::fixture::Fixture;
use txn_fixtures::wire;
use txn_testkit::proxy::{Matching, Point};

use super::{Stage, soon};

async fn paused(stage: &mut Stage, what: &str, at: Matching, point: Point, committed: bool) {
    let context = format!("paused {what}");
    let hold = stage.proxy.hold(at, point);
    let mut process = stage.start(Task::Transfer, 500);
    soon(hold.reached()).await;
    process.pause().await;
    // Others take it for dead, decide it, and go on.
    stage.rewrite().await;
    hold.release();
    process.resume();
    let said = process.ends().await;
    let attempts = match said[..] {
        [Word::Committed(attempts), Word::Drained(true)] => attempts,
        _ => panic!("{context}: it said {said:?}"),
    };
    assert_eq!(attempts == 1, committed, "{context}: it took {attempts} attempts");
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
