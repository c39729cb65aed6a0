//! Processes that are killed at each step.
//!
//! If the commit has not arrived, nothing happened. Otherwise everything did.

use txn_fixtures::coordinator::Task;
use txn_fixtures::fixture::Fixture;
use txn_fixtures::wire;
use txn_testkit::proxy::{Matching, Point};

use super::{Stage, apply_of, soon};

/// The fate of the request at which the process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The request is lost with its sender.
    Lost,
    /// The request arrives after the death of its sender. No other process has noticed the death.
    Arrives,
    /// The request arrives after another process has decided the transaction. The other process has
    /// written the documents.
    ArrivesAfterOthers,
}

/// Kills a process at a request, and checks whether its transaction happened.
async fn killed(
    stage: &mut Stage,
    what: &str,
    at: Matching,
    point: Point,
    then: Then,
    applied: bool,
) {
    let context = format!("killed {what}, the request {then:?}");
    let hold = stage.proxy.hold(at, point);
    let mut process = stage.start_mortal();
    process.reaches(&hold).await;
    let attempts = process.kill().await;
    let tid = *attempts.last().expect("it has begun");
    match then {
        Then::Lost => hold.discard(),
        Then::Arrives => {
            hold.release();
            soon(stage.proxy.settle()).await;
        }
        Then::ArrivesAfterOthers => {
            stage.happened += i64::from(applied);
            stage.rewrite().await;
            hold.release();
            soon(stage.proxy.settle()).await;
            stage.happened -= i64::from(applied);
        }
    }
    assert_eq!(stage.is_committed(tid).await, applied, "{context}");
    stage.happened += i64::from(applied);
    stage.audit(&context).await;
    // The outcome never changes, and all later transactions succeed.
    stage.rewrite().await;
    assert_eq!(stage.is_committed(tid).await, applied, "{context}");
    stage.audit(&context).await;
}

pub(crate) async fn before_the_commit(fixture: &Fixture) {
    let stage = &mut Stage::on(fixture).await;
    let (before, after) = (Point::Before, Point::After);
    let (locks, validates, commits) = (wire::locks, wire::validates, wire::commits);
    killed(stage, "before the locks", locks(), before, Then::Lost, false).await;
    killed(stage, "with the locks sent", locks(), before, Then::Arrives, false).await;
    killed(stage, "with the locks sent", locks(), before, Then::ArrivesAfterOthers, false).await;
    killed(stage, "with the locks taken", locks(), after, Then::Lost, false).await;
    killed(stage, "with the locks acknowledged", validates(), before, Then::Lost, false).await;
    killed(stage, "with the reads validated", validates(), after, Then::Lost, false).await;
    killed(stage, "before the commit", commits(), before, Then::Lost, false).await;
}

pub(crate) async fn at_the_commit(fixture: &Fixture) {
    let stage = &mut Stage::on(fixture).await;
    let (before, after, commits) = (Point::Before, Point::After, wire::commits);
    killed(stage, "with the commit sent", commits(), before, Then::ArrivesAfterOthers, false).await;
    killed(stage, "with the commit sent", commits(), before, Then::Arrives, true).await;
    killed(stage, "with the commit carried out", commits(), after, Then::Lost, true).await;
}

pub(crate) async fn after_the_commit(fixture: &Fixture) {
    let stage = &mut Stage::on(fixture).await;
    let (before, after) = (Point::Before, Point::After);
    let (applies, finishes) = (wire::applies, wire::finishes);
    killed(stage, "before the apply", applies(), before, Then::Lost, true).await;
    killed(stage, "with the apply sent", applies(), before, Then::ArrivesAfterOthers, true).await;
    killed(stage, "with the apply carried out", applies(), after, Then::Lost, true).await;
    killed(stage, "before the end", finishes(), before, Then::Lost, true).await;
    killed(stage, "with the end sent", finishes(), before, Then::ArrivesAfterOthers, true).await;
    killed(stage, "with the end carried out", finishes(), after, Then::Lost, true).await;
    in_the_middle_of_the_apply(fixture, stage).await;
}

/// The process dies when two of three documents are applied.
async fn in_the_middle_of_the_apply(fixture: &Fixture, stage: &mut Stage) {
    let hold = stage.proxy.hold(apply_of("a1"), Point::Before);
    let mut process = stage.start(Task::Transfer, 1);
    process.reaches(&hold).await;
    let is_locked = async |id: &str| {
        let source = fixture.plain.source(stage.accounts.name(), id).await.expect("exists");
        source.contains("\"transaction_tid\"")
    };
    soon(async {
        while is_locked("a0").await || is_locked("a2").await {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(is_locked("a1").await);
    let attempts = process.kill().await;
    hold.discard();
    let tid = *attempts.last().expect("it is applied");
    assert!(stage.is_committed(tid).await, "killed in the middle of the apply");
    stage.happened += 1;
    stage.audit("killed in the middle of the apply").await;
}
