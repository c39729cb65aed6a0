//! Dropped days of the transaction table that processes still use.

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::{Store, WriteOp};
use txn_core::{Domain, Error, LockMode, Options, Raw};
use txn_protocol::rule::Rules;
use txn_sim::server::{Manners, Reach, Server};

use super::directed::{Directed, Fate};
use super::left_behind::{ground, number, thing};
use super::{coordinator, coordinator_on, violations_of};
use txn_sim::machine::in_virtual_time;

/// How far the clock of a janitor is ahead. The janitor drops the present day.
const DAYS: i64 = 4 * 24 * 3_600 * 1_000;

/// The other process at the day that a janitor drops.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    /// No other process.
    Absent,
    /// A second janitor lifts the block. The block prevents the decision of a lock.
    Lifts,
    /// A second janitor did that before and died. Its request arrives now.
    LiftsLate,
}

/// An owner commits at each step of a dropping janitor.
///
/// The janitor drops the day of the owner.
///
/// The janitor's clock is days ahead, and the janitor pauses at each step in turn. The owner dies
/// before the acknowledgement of its apply.
#[must_use]
pub(super) fn a_commit_while_its_day_is_dropped(rules: &Rules) -> Vec<String> {
    let mut violations = commits_while_dropped(rules, Other::Absent, 0.0);
    violations.extend(commits_while_dropped(rules, Other::Absent, 1.0));
    violations
}

/// The same, but a second janitor lifts the block first.
///
/// The lift precedes the commit of the owner.
#[must_use]
pub(super) fn a_commit_behind_a_lifted_block(rules: &Rules) -> Vec<String> {
    commits_while_dropped(rules, Other::Lifts, 1.0)
}

/// As [`a_commit_while_its_day_is_dropped`], but with a late lift.
///
/// The lift is from a janitor that died before.
#[must_use]
pub(super) fn a_commit_behind_a_late_lift(rules: &Rules) -> Vec<String> {
    commits_while_dropped(rules, Other::LiftsLate, 1.0)
}

fn commits_while_dropped(rules: &Rules, other: Other, scan_hides: f64) -> Vec<String> {
    let mut violations = Vec::new();
    let (mut committed, mut dropped) = (0, 0);
    for step in 1..=60 {
        match in_virtual_time(commit_while_dropped(rules, step, other, scan_hides)) {
            Ok(Drop { acknowledged, stands, drops }) => {
                committed += usize::from(acknowledged);
                dropped += drops;
                if acknowledged && !stands {
                    violations.push(format!("step {step}: an acknowledged write was undone"));
                }
            }
            Err(error) => violations.push(format!("step {step}: {error}")),
        }
    }
    // A janitor that knows of a late lift drops nothing yet.
    if committed == 0 || dropped == 0 && other != Other::LiftsLate {
        violations
            .push(format!("{committed} commits, {dropped} drops: the schedule shows nothing"));
    }
    violations
}

/// The fate of a commit and of its day.
struct Drop {
    acknowledged: bool,
    stands: bool,
    drops: usize,
}

async fn commit_while_dropped(
    rules: &Rules,
    step: u64,
    other: Other,
    scan_hides: f64,
) -> Result<Drop, Error> {
    let server = ground(rules, &["a".to_owned(), "b".to_owned()]).await?;
    let (owner, domain) = coordinator(rules, &server, "owner", 0).await?;
    let things = domain.collection::<Raw>("things").await?;
    let (process, late) = coordinator(rules, &server, "late janitor", DAYS).await?;
    let late_things = late.collection::<Raw>("things").await?;
    if other != Other::Absent {
        dies_holding_b(rules, &server).await?;
    }
    if other == Other::LiftsLate {
        dies_lifting(rules, &server).await?;
    }
    process.pause_after(step, Duration::from_secs(if other == Other::Lifts { 120 } else { 5 }));
    let janitor = late.clone();
    let quiet = Manners { scan_hides, scan_hides_all: true, ..Manners::default() };
    server.set_manners(quiet);
    let pass = tokio::spawn(async move { janitor.admin().janitor_pass().await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    match other {
        Other::Absent => {}
        Other::Lifts => {
            server.set_manners(Manners::default());
            let (_, second) = coordinator(rules, &server, "second janitor", 0).await?;
            second.admin().janitor_pass().await?;
        }
        Other::LiftsLate => {
            if let Some(partition) = partition(&server) {
                // If the day is dropped already, the partition is gone.
                let _ = server.block_writes(&partition, false).await;
            }
        }
    }
    server.set_manners(Manners { slow_replication: 1.0, ..quiet });
    let options = Options::default().with_metadata(Some("\"with a record\"".to_owned()));
    let task = tokio::spawn(async move {
        domain
            .run::<_, Error, _>(&options, async |tx| tx.put(&things, "a", &thing(2)))
            .await
            .map(drop)
    });
    let acknowledged = tokio::time::timeout(Duration::from_secs(3), task).await;
    let acknowledged = matches!(acknowledged, Ok(Ok(Ok(()))));
    owner.kill_after(1);
    server.set_manners(quiet);
    server.crash();
    process.leave_alone();
    let drops = match pass.await {
        Ok(report) => report?.partitions_dropped,
        Err(_) => 0,
    };
    server.set_manners(Manners::default());
    let stands = number(late.reader().verified().get(&late_things, "a").await?) == 2;
    Ok(Drop { acknowledged, stands, drops })
}

/// The oldest partition of the present day.
///
/// The day is that of all processes but the late janitor.
fn partition(server: &Server) -> Option<Arc<str>> {
    server.documents().into_keys().find(|name| name.starts_with("txn-shop-"))
}

/// A process locks `b`, and dies before its first record.
async fn dies_holding_b(rules: &Rules, server: &Arc<Server>) -> Result<(), Error> {
    let (process, domain) = coordinator(rules, server, "dead", 0).await?;
    let things = domain.collection::<Raw>("things").await?;
    let tx = domain.begin(&Options::default().with_lock_mode(LockMode::AtRead))?;
    tx.get(&things, "b").await?;
    process.kill_after(1);
    // The next heartbeat is due.
    tokio::time::sleep(Duration::from_millis(600)).await;
    Ok(())
}

/// A janitor lifts a foreign block, and dies early.
///
/// The janitor dies before the request is carried out.
async fn dies_lifting(rules: &Rules, server: &Arc<Server>) -> Result<(), Error> {
    if let Some(partition) = partition(server) {
        // A janitor left this block when it died.
        let _ = server.block_writes(&partition, true).await;
    }
    let way = Directed::new(server.clone());
    way.keep_lifts();
    let (process, domain) = coordinator_on(rules, way.clone(), "lifting janitor", 0).await?;
    let pass = tokio::spawn(async move { domain.admin().janitor_pass().await });
    // If the janitor gets that far.
    let _ = tokio::time::timeout(Duration::from_secs(20), way.reached()).await;
    process.kill_after(1);
    pass.abort();
    Ok(())
}

/// A janitor's watermark vanishes with its primary.
///
/// The janitor drops a day and dies.
///
/// A process that saw the watermark takes the lock of a transaction of that day for void. Then that
/// transaction commits.
#[must_use]
pub(super) fn a_watermark_that_vanishes(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned(), "b".to_owned()]).await?;
        let mut wrong = Vec::new();
        let way = Directed::new(server.clone());
        let (late_process, late) = coordinator_on(rules, way.clone(), "late janitor", DAYS).await?;
        let (_, finder) = coordinator(rules, &server, "finder", DAYS).await?;
        let of_finder = finder.collection::<Raw>("things").await?;
        // The partition of its own day exists.
        add(&finder, "b", 1).await?;
        let (_, second) = coordinator(rules, &server, "second janitor", 0).await?;
        let Some(partition) = partition(&server) else {
            return Ok(vec!["there is no partition: the schedule shows nothing".to_owned()]);
        };
        dies_holding_b(rules, &server).await?;
        let (process, owner) = coordinator(rules, &server, "owner", 0).await?;
        let owning = owner.begin(&Options::default().with_lock_mode(LockMode::AtRead))?;
        let things = owner.collection::<Raw>("things").await?;
        let read = number(owning.get(&things, "a").await?);
        owning.put(&things, "a", &thing(read + 1))?;
        // No heartbeat is sent meanwhile.
        process.pause_after(1, Duration::from_secs(60));
        let quiet = Manners { scan_hides: 1.0, scan_hides_all: true, ..Manners::default() };
        server.set_manners(quiet);
        way.cue(Fate::HeldBefore, |write| {
            matches!(&write.op, WriteOp::Replace(source, _) if source.contains("\"dropped_through\":\""))
        });
        let dropping = tokio::spawn(async move { late.admin().janitor_pass().await });
        if tokio::time::timeout(Duration::from_secs(5), way.reached()).await.is_err() {
            wrong.push("the day is not dropped: the schedule shows nothing".to_owned());
        }
        server.set_manners(Manners { slow_replication: 1.0, hung_replication: true, ..quiet });
        way.release();
        tokio::time::sleep(Duration::from_millis(10)).await;
        late_process.kill_after(1);
        server.set_manners(Manners::default());
        server.set_reach(&partition, Reach::Unknown);
        let finding = tokio::spawn(async move { add(&finder, "a", 10).await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.crash();
        server.set_reach(&partition, Reach::Open);
        let committing = tokio::spawn(async move { owning.commit().await.map(drop) });
        process.leave_alone();
        second.admin().janitor_pass().await?;
        let of = |done: Result<Result<(), Error>, _>| u64::from(matches!(done, Ok(Ok(()))));
        let (owned, found) = (of(committing.await), of(finding.await));
        dropping.abort();
        second.admin().janitor_pass().await?;
        let (_, reader) = coordinator(rules, &server, "reader", DAYS).await?;
        let stands = number(reader.reader().verified().get(&of_finder, "a").await?);
        if stands != 1 + owned + 10 * found {
            wrong.push(format!("1 + {owned} + 10 * {found} came to {stands}"));
        }
        Ok(wrong)
    })
}

/// Adds to a document, and waits for the commit.
async fn add(domain: &Domain, id: &str, more: u64) -> Result<(), Error> {
    let things = domain.collection::<Raw>("things").await?;
    let options = Options::default().with_metadata(Some("\"with a record\"".to_owned()));
    let added = domain.run::<_, Error, _>(&options, async |tx| {
        let read = number(tx.get(&things, id).await?);
        tx.put(&things, id, &thing(read + more))
    });
    added.await.map(std::mem::drop)
}
