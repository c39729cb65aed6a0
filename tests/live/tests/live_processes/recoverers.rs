//! Recoverers that are killed, and concurrent recoverers.

use txn_core::AttemptId;
use txn_fixtures::coordinator::{Coordinator, Task, Word};
use txn_fixtures::fixture::Fixture;
use txn_fixtures::wire;
use txn_testkit::proxy::{Hold, Matching, Point, Route};

use super::{Stage, apply_of};

/// Kills a process after its commit was carried out.
async fn a_dead_one(stage: &Stage) -> AttemptId {
    let hold = stage.proxy.hold(wire::commits(), Point::After);
    let mut process = stage.start_mortal();
    process.reaches(&hold).await;
    let attempts = process.kill().await;
    hold.discard();
    *attempts.last().expect("it has sent its commit")
}

pub(crate) async fn killed_during_a_roll_forward(fixture: &Fixture) {
    let mut stage = Stage::on(fixture).await;
    for (what, at, point) in [
        ("before it touches the record", wire::commits(), Point::Before),
        ("when it has touched the record", wire::commits(), Point::After),
        ("before it applies one of the documents", apply_of("a1"), Point::Before),
        ("when it has applied one of the documents", apply_of("a2"), Point::After),
        ("before it says that all is done", wire::finishes(), Point::Before),
        ("when it has said that all is done", wire::finishes(), Point::After),
    ] {
        let tid = a_dead_one(&stage).await;
        let hold = stage.proxy.hold(at, point);
        let mut recoverer = stage.start(Task::Recover, 1);
        recoverer.reaches(&hold).await;
        recoverer.kill().await;
        hold.discard();
        let context = format!("the recoverer is killed {what}");
        assert!(stage.is_committed(tid).await, "{context}");
        stage.happened += 1;
        stage.audit(&context).await;
    }
    stage.ends(fixture).await;
}

/// Starts two recoverers, each held at a request.
async fn two_recoverers(stage: &Stage, at: &Matching) -> [(Hold, Coordinator); 2] {
    let first = stage.proxy.hold(at.clone(), Point::Before);
    let mut process = stage.start(Task::Recover, 500);
    process.reaches(&first).await;
    let second = stage.proxy.hold(at.clone(), Point::Before);
    let mut another = stage.start(Task::Recover, 500);
    another.reaches(&second).await;
    [(first, process), (second, another)]
}

/// Releases both recoverers at the same time.
///
/// Checks that each passes without an error.
async fn they_go_on(recoverers: [(Hold, Coordinator); 2]) {
    let [(first, mut one), (second, mut another)] = recoverers;
    first.release();
    second.release();
    for said in [one.ends().await, another.ends().await] {
        assert!(matches!(said[..], [Word::Recovered, Word::Drained(true)]), "{said:?}");
    }
}

pub(crate) async fn two_and_the_owner_after_the_commit(fixture: &Fixture) {
    let mut stage = Stage::on(fixture).await;
    for round in 0..3 {
        let hold = stage.proxy.hold(wire::applies(), Point::Before);
        let mut owner = stage.start(Task::Transfer, 500);
        owner.reaches(&hold).await;
        owner.pause().await;
        let recoverers = two_recoverers(&stage, &wire::applies()).await;
        hold.release();
        owner.resume();
        they_go_on(recoverers).await;
        let said = owner.ends().await;
        assert!(matches!(said[..], [Word::Committed(_), Word::Drained(true)]), "{round}: {said:?}");
        assert!(stage.is_committed(*owner.attempts().last().expect("it committed")).await);
        stage.happened += 1;
        stage.audit(&format!("round {round}")).await;
    }
    stage.ends(fixture).await;
}

/// The owner's commit and two aborts by recovery compete for one record.
pub(crate) async fn two_and_the_owner_before_the_commit(fixture: &Fixture) {
    let mut stage = Stage::on(fixture).await;
    let verdict = Matching::route(Route::Bulk).with_body("\"state\":\"aborted\"");
    for round in 0..3 {
        let hold = stage.proxy.hold(wire::commits(), Point::Before);
        let mut owner = stage.start(Task::Transfer, 500);
        owner.reaches(&hold).await;
        owner.pause().await;
        let recoverers = two_recoverers(&stage, &verdict).await;
        hold.release();
        owner.resume();
        they_go_on(recoverers).await;
        let said = owner.ends().await;
        let [Word::Committed(attempts), Word::Drained(true)] = said[..] else {
            panic!("round {round}: {said:?}")
        };
        let tids = owner.attempts().to_vec();
        assert_eq!(tids.len(), usize::try_from(attempts).expect("a few"));
        for (n, tid) in tids.iter().enumerate() {
            let last = n + 1 == tids.len();
            assert_eq!(stage.is_committed(*tid).await, last, "round {round}, attempt {n}");
        }
        stage.happened += 1;
        stage.audit(&format!("round {round}: {attempts} attempts")).await;
    }
    stage.ends(fixture).await;
}
