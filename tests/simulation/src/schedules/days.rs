//! Days of the transaction table that are dropped while somebody is still at them.

use std::time::Duration;

use txn_core::{Error, Options, Raw};
use txn_protocol::rule::Rules;
use txn_sim::server::{Manners, Server};

use super::coordinator;
use crate::virtual_time::in_virtual_time;

/// A janitor whose clock is days ahead drops a day, and stands still at each of its steps in turn. There an owner of
/// that day commits, and dies before its apply is acknowledged.
#[must_use]
pub(super) fn a_commit_while_its_day_is_dropped(rules: &Rules) -> Vec<String> {
    let mut violations = Vec::new();
    let (mut committed, mut dropped) = (0, 0);
    for scan_hides in [0.0, 1.0] {
        for step in 1..=60 {
            match in_virtual_time(commit_while_its_day_is_dropped(rules, step, scan_hides)) {
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
    }
    if committed == 0 || dropped == 0 {
        violations
            .push(format!("{committed} commits, {dropped} drops: the schedule shows nothing"));
    }
    violations
}

/// What became of a commit and of its day.
struct Drop {
    acknowledged: bool,
    stands: bool,
    drops: usize,
}

async fn commit_while_its_day_is_dropped(
    rules: &Rules,
    step: u64,
    scan_hides: f64,
) -> Result<Drop, Error> {
    let server = Server::new(1, Manners::default());
    let (_, founder) = coordinator(rules, &server, "founder", 0).await?;
    founder.create_collection::<Raw>("things", None).await?;
    let things = founder.raw_collection("things").await?;
    let thing = |n: u64| Raw::new(format!("{{\"n\":{n}}}"));
    founder.transact::<_, Error, _>(async |tx| tx.insert(&things, "a", &thing(1))).await?;
    founder.shutdown(Duration::from_secs(10)).await;
    let (owner, domain) = coordinator(rules, &server, "owner", 0).await?;
    let (process, late) =
        coordinator(rules, &server, "late janitor", 4 * 24 * 3_600 * 1_000).await?;
    let late_things = late.raw_collection("things").await?;
    process.pause_after(step, Duration::from_secs(5));
    let janitor = late.clone();
    let quiet = Manners { scan_hides, ..Manners::default() };
    server.set_manners(quiet);
    let pass = tokio::spawn(async move { janitor.janitor_pass().await });
    tokio::time::sleep(Duration::from_millis(10)).await;
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
    let drops = match pass.await {
        Ok(report) => report?.partitions_dropped,
        Err(_) => 0,
    };
    server.set_manners(Manners::default());
    let now = late.reader().verified().get(&late_things, "a").await?;
    let stands = now.is_some_and(|now| now.as_str().contains('2'));
    Ok(Drop { acknowledged, stands, drops })
}
