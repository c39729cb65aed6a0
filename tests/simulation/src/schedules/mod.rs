//! Fixed schedules for courses that random seeds rarely produce.
//!
//! Each schedule returns its violations.

mod days;
mod directed;
mod in_between;
mod left_behind;
mod made_again;
mod moved;
mod refused;
mod undecided;

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::{Key, Read, Store, Write, WriteOp};
use txn_core::{Config, Domain, Error, Options, Raw};
use txn_protocol::rule::Rules;

use txn_sim::machine::{ClockOf, EntropyOf, Log, Process, Recording, StoreOf, in_virtual_time};
use txn_sim::server::{HUNG, Manners, REPLICATION, Server};

/// A schedule with its name. Its processes work under the given rules.
pub type Schedule = (&'static str, fn(&Rules) -> Vec<String>);

/// Schedules that detect the omission of a rule.
pub const OF_RULES: [Schedule; 18] = [
    ("a deletion that vanishes", |rules| vanishes(rules, Change::Deletion)),
    ("a write that vanishes", |rules| vanishes(rules, Change::Write)),
    ("an abort that vanishes", left_behind::an_abort_that_vanishes),
    ("an own commit that vanishes", in_between::an_own_commit_that_vanishes),
    ("a later commit that vanishes", in_between::a_later_commit_that_vanishes),
    ("an own commit that is written over", in_between::an_own_commit_that_is_written_over),
    ("an absence that ends and begins", in_between::an_absence_that_ends_and_begins),
    ("absences that change places", in_between::absences_that_change_places),
    ("what a dead owner committed", left_behind::commits_of_dead_owner),
    ("a commit that vanishes", undecided::a_commit_that_vanishes),
    ("a reader beside a late commit", undecided::a_reader_beside_a_late_commit),
    ("a watermark that vanishes", days::a_watermark_that_vanishes),
    ("a commit behind a lifted block", days::a_commit_behind_a_lifted_block),
    ("a commit behind a late lift", days::a_commit_behind_a_late_lift),
    ("a commit while its day is dropped", days::a_commit_while_its_day_is_dropped),
    ("a placeholder that is rewritten", moved::a_placeholder_that_is_rewritten),
    (
        "an insert that is deleted behind its owner",
        moved::an_insert_that_is_deleted_behind_its_owner,
    ),
    ("an index that is made again", made_again::an_index_that_is_made_again),
];

/// Schedules about refusals, and about remains of owners, applications and operators.
pub const OF_BAD_WORLDS: [Schedule; 6] = [
    ("a refusal of what was applied", refused::a_refusal_of_what_was_applied),
    ("a large recovery", left_behind::a_large_recovery),
    ("an index that is lost", left_behind::an_index_that_is_lost),
    ("a lock that was copied", left_behind::a_lock_that_was_copied),
    ("an owner that hangs", left_behind::an_owner_that_hangs),
    ("an observer that panics", left_behind::an_observer_that_panics),
];

/// The virtual time after which a schedule hangs.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The change of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Deletion,
    Write,
}

/// An owner applies its participant and dies, and the apply vanishes.
///
/// Another process sees the apply and finishes the record. Then the primary crashes, because the
/// apply was never acknowledged. Then the day of the record is dropped.
fn vanishes(rules: &Rules, change: Change) -> Vec<String> {
    violations_of(run_vanishing(rules, change))
}

async fn run_vanishing(rules: &Rules, change: Change) -> Result<Vec<String>, Error> {
    let mut violations = Vec::new();
    let server = Server::new(1, Manners::default());
    let (_, founder) = coordinator(rules, &server, "founder", 0).await?;
    founder.create_collection::<Raw>("things", None).await?;
    let things = founder.collection::<Raw>("things").await?;
    let (before, after) = (Raw::new("{\"n\":1}"), Raw::new("{\"n\":2}"));
    founder.transact::<_, Error, _>(async |tx| tx.insert(&things, "a", &before)).await?;
    founder.shutdown(Duration::from_secs(10)).await;
    // An owner dies with its change committed, seen, and not acknowledged.
    let is_locked = || {
        let documents = server.documents();
        let thing = documents.get("things").and_then(|things| things.get("a"));
        thing.is_some_and(|source| source.contains("\"transaction_tid\":\""))
    };
    let is_committed = || {
        let documents = server.documents();
        documents.values().flat_map(|c| c.values()).any(|s| s.contains("\"state\":\"committed\""))
    };
    let is_seen = async || match &server.read_primary(&[Key::new("things", "a")]).await[..] {
        [Read::Absent] => change == Change::Deletion,
        [Read::Found { source, .. }] => change == Change::Write && source.contains("\"n\":2"),
        _ => false,
    };
    let (owner, domain) = coordinator(rules, &server, "owner", 0).await?;
    let things = domain.collection::<Raw>("things").await?;
    let slow = Manners { slow_replication: 1.0, ..Manners::default() };
    server.set_manners(slow);
    let options = Options::default().with_metadata(Some("\"with a record\"".to_owned()));
    let task = tokio::spawn(async move {
        let changed = domain.run::<_, Error, _>(&options, async |tx| match change {
            Change::Deletion => tx.delete(&things, "a"),
            Change::Write => tx.put(&things, "a", &after),
        });
        changed.await.map(drop)
    });
    // Once the lock is on the replicas, the commit is on its way to them. Later writes hang there.
    let until = async |reached: &dyn Fn() -> bool| {
        for _ in 0..5_000 {
            if reached() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until(&is_locked).await;
    server.set_manners(Manners { hung_replication: true, ..slow });
    until(&is_committed).await;
    tokio::time::sleep(REPLICATION).await;
    owner.kill_after(1);
    server.set_manners(Manners::default());
    if !is_locked() || !is_seen().await {
        violations.push("no change is under way: the schedule shows nothing".to_owned());
    }
    // A process that recovers, and finds all work done.
    let (_, recoverer) = coordinator(rules, &server, "recoverer", 0).await?;
    recoverer.admin().janitor_pass().await?;
    server.crash();
    tokio::time::sleep(2 * HUNG).await;
    // Days later, in a scan that shows no lock.
    server.set_manners(Manners { scan_hides: 1.0, scan_hides_all: true, ..Manners::default() });
    let (_, late) = coordinator(rules, &server, "late janitor", 4 * 24 * 3_600 * 1_000).await?;
    let report = late.admin().janitor_pass().await?;
    if report.partitions_dropped == 0 {
        violations.push(format!("no partition was dropped: {report:?}"));
    }
    let things = late.collection::<Raw>("things").await?;
    let stands = late.reader().verified().get(&things, "a").await?;
    let undone = match change {
        Change::Deletion => stands.is_some(),
        Change::Write => !stands.is_some_and(|stands| stands.as_str().contains('2')),
    };
    if undone {
        violations.push(format!("an acknowledged change was undone: {change:?}"));
    }
    task.abort();
    Ok(violations)
}

/// Runs a schedule in virtual time. An error, or no end within [`LONGEST`], is a violation, too.
fn violations_of(schedule: impl Future<Output = Result<Vec<String>, Error>>) -> Vec<String> {
    match in_virtual_time(async { tokio::time::timeout(LONGEST, schedule).await }) {
        Ok(Ok(violations)) => violations,
        Ok(Err(error)) => vec![format!("the schedule does not run: {error}")],
        Err(_) => vec![format!("the schedule does not end within {LONGEST:?}")],
    }
}

/// A process with a domain of its own, without a janitor task.
async fn coordinator(
    rules: &Rules,
    server: &Arc<Server>,
    name: &str,
    off: i64,
) -> Result<(Arc<Process>, Domain), Error> {
    coordinator_on(rules, server.clone(), name, off).await
}

/// The same, with another access to the server.
async fn coordinator_on(
    rules: &Rules,
    store: Arc<dyn Store>,
    name: &str,
    off: i64,
) -> Result<(Arc<Process>, Domain), Error> {
    let (process, config) = settings(rules, store, name, off);
    let domain = Domain::open_or_create(Arc::new(StoreOf(process.clone())), "shop", config).await?;
    Ok((process, domain))
}

/// A process, and the settings of a domain in it.
fn settings(rules: &Rules, store: Arc<dyn Store>, name: &str, off: i64) -> (Arc<Process>, Config) {
    let seed = name.len() as u64;
    let log = Arc::new(Log::new(Recording::Nothing));
    let process = Process::new(name.to_owned(), store, log, seed, 1.0, off);
    let config = Config::default()
        .with_clock(Arc::new(ClockOf(process.clone())))
        .with_entropy(Arc::new(EntropyOf(process.clone())))
        .with_process_name(name.to_owned())
        .with_retention_days(1)
        .with_janitor_interval(None)
        .with_rules(rules.clone());
    (process, config)
}

/// Whether a write makes a transaction committed.
fn is_committed(write: &Write) -> bool {
    let committed = |source: &str| source.contains("\"state\":\"committed\"");
    matches!(&write.op, WriteOp::Create(source) | WriteOp::Replace(source, _) if committed(source))
}

/// Writes exist on their primary alone.
fn hangs() -> Manners {
    Manners { slow_replication: 1.0, hung_replication: true, ..Manners::default() }
}
