//! Each write of some work is applied and refused, before an outage.
//!
//! The outage ends in time, while the owner removes its locks, or much later.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;
use txn_core::store::{Layer, Outcome, Store, Write};
use txn_core::{Collection, Domain, Error, ErrorKind, LockMode, Options, Raw};
use txn_protocol::rule::Rules;
use txn_sim::{FaultPlan, FaultStore};

use super::{coordinator, coordinator_on};
use txn_sim::machine::in_virtual_time;
use txn_sim::server::{Manners, Server};

/// The deadline of the owner.
const DEADLINE: Duration = Duration::from_secs(5);
/// The ends of the outage, from the start of the work.
///
/// The outage ends in time, in the lease after the deadline, or much later.
const ENDS: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_millis(5_400), Duration::from_secs(60)];
/// The maximum number of documents that any work writes.
const MOST_WRITES: u64 = 40;

/// The work that is disturbed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// Locks, a commit, an apply, a finish.
    Transfer,
    /// A transfer with heartbeats.
    SlowTransfer,
    /// A write of one document, without a record.
    OneDocument,
    /// Locks that are released, and an aborted record.
    GivesUp,
    /// The recovery of a dead owner's transaction.
    Recovery,
    /// The domain's own documents and a claim.
    Opening,
}

/// The answer to the applied write.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Overloaded,
    Missing,
}

/// Refuses one applied write, and begins an outage after it.
#[derive(Debug)]
struct Striking {
    faults: FaultStore,
    answer: Answer,
    /// Once armed: the writes before the refusal, and the outage's end.
    armed: Mutex<Option<(u64, Instant)>>,
}

impl Striking {
    fn arm(&self, at: u64, ends: Duration) {
        *self.armed.lock() = Some((at, Instant::now() + ends));
    }

    fn has_struck(&self) -> bool {
        self.faults.injected().outage > 0
    }

    /// The end of the outage, if this write is refused.
    fn strikes(&self, write: &Write) -> Option<Instant> {
        let mut armed = self.armed.lock();
        let (left, ends) = armed.as_mut().filter(|_| write.op.changes())?;
        *left = left.checked_sub(1)?;
        (*left == 0).then_some(*ends)
    }
}

#[async_trait]
impl Layer for Striking {
    fn inner(&self) -> &dyn Store {
        &self.faults
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let struck: Vec<Option<Instant>> = writes.iter().map(|write| self.strikes(write)).collect();
        let mut outcomes = self.faults.write_many(writes).await;
        for (outcome, ends) in outcomes.iter_mut().zip(struck) {
            let Some(ends) = ends.filter(|_| matches!(outcome, Outcome::Applied(_))) else {
                continue;
            };
            *outcome = match self.answer {
                Answer::Overloaded => Outcome::RejectedInDoubt("429".to_owned()),
                Answer::Missing => Outcome::MissingCollection,
            };
            self.faults.begin_outage(None, ends.saturating_duration_since(Instant::now()));
        }
        outcomes
    }
}

/// Refuses each write of each kind of work in turn.
#[must_use]
pub(super) fn a_refusal_of_what_was_applied(rules: &Rules) -> Vec<String> {
    let mut violations = Vec::new();
    let works = [
        Work::Transfer,
        Work::SlowTransfer,
        Work::OneDocument,
        Work::GivesUp,
        Work::Recovery,
        Work::Opening,
    ];
    for work in works {
        for answer in [Answer::Overloaded, Answer::Missing] {
            for ends in ENDS {
                let mut struck = 0;
                for at in 1..=MOST_WRITES {
                    let name = format!("{work:?}, write {at} {answer:?}, back after {ends:?}");
                    match in_virtual_time(strike(rules, work, answer, at, ends)) {
                        Ok(Struck::NotReached) => break,
                        Ok(Struck::At(wrong)) => {
                            struck += 1;
                            violations.extend(wrong.iter().map(|what| format!("{name}: {what}")));
                        }
                        Err(error) => violations.push(format!("{name}: {error}")),
                    }
                }
                if struck == 0 {
                    violations.push(format!("{work:?}: nothing was struck"));
                }
            }
        }
    }
    violations
}

enum Struck {
    /// The work needs fewer writes.
    NotReached,
    /// The violations.
    At(Vec<String>),
}

fn amount(n: i64) -> Raw {
    Raw::new(format!("{{\"n\":{n}}}"))
}

async fn strike(
    rules: &Rules,
    work: Work,
    answer: Answer,
    at: u64,
    ends: Duration,
) -> Result<Struck, Error> {
    let server = Server::new(1, Manners::default());
    let (_, founder) = coordinator(rules, &server, "founder", 0).await?;
    founder.create_collection::<Raw>("things", None).await?;
    let things = founder.collection::<Raw>("things").await?;
    let inserted = founder.transact::<_, Error, _>(async |tx| {
        tx.insert(&things, "a", &amount(100))?;
        tx.insert(&things, "b", &amount(100))
    });
    inserted.await?;
    founder.shutdown(Duration::from_secs(10)).await;

    let faults = FaultStore::new(server.clone(), FaultPlan::none(1));
    let store = Arc::new(Striking { faults, answer, armed: Mutex::default() });
    let told = match work {
        Work::Opening => {
            store.arm(at, ends);
            opens(rules, &store).await
        }
        Work::Recovery => {
            let (_, domain) = coordinator_on(rules, store.clone(), "janitor", 0).await?;
            leave_behind(rules, &server).await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            store.arm(at, ends);
            // The next pass tries the remaining work again.
            let passed = domain.admin().janitor_pass().await.map(drop);
            domain.shutdown(Duration::from_secs(20)).await;
            passed
        }
        _ => {
            let (_, domain) = coordinator_on(rules, store.clone(), "owner", 0).await?;
            let things = domain.collection::<Raw>("things").await?;
            store.arm(at, ends);
            let told = moves(work, &domain, &things).await;
            domain.shutdown(Duration::from_secs(90)).await;
            told
        }
    };
    if !store.has_struck() {
        return Ok(Struck::NotReached);
    }
    tokio::time::sleep(Duration::from_secs(90)).await;
    Ok(Struck::At(look(rules, &server, work, told).await?))
}

async fn opens(rules: &Rules, store: &Arc<Striking>) -> Result<(), Error> {
    let (_, domain) = coordinator_on(rules, store.clone(), "newcomer", 0).await?;
    domain.create_collection::<Raw>("more", None).await.map(drop)
}

/// A transfer with an owner that dies while it holds its locks.
async fn leave_behind(rules: &Rules, server: &Arc<Server>) -> Result<(), Error> {
    let (process, domain) = coordinator(rules, server, "mortal", 0).await?;
    let things = domain.collection::<Raw>("things").await?;
    let tx = domain.begin(&Options::default().with_lock_mode(LockMode::AtRead))?;
    tx.get(&things, "a").await?;
    tx.get(&things, "b").await?;
    process.kill_after(1);
    std::mem::forget(tx);
    Ok(())
}

async fn moves(work: Work, domain: &Domain, things: &Collection<Raw>) -> Result<(), Error> {
    let slow = work == Work::SlowTransfer;
    let lock_mode = match slow || work == Work::GivesUp {
        true => LockMode::AtRead,
        false => LockMode::AtCommit,
    };
    let options = Options::default().with_timeout(Some(DEADLINE)).with_lock_mode(lock_mode);
    let run = domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(things, "a").await?;
        if work == Work::OneDocument {
            return tx.put(things, "a", &amount(90));
        }
        tx.get(things, "b").await?;
        if slow || work == Work::GivesUp {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        if work == Work::GivesUp {
            // No document has this id.
            return tx.get(things, "").await.map(drop);
        }
        tx.put(things, "a", &amount(90))?;
        tx.put(things, "b", &amount(110))?;
        tx.insert(things, "slip", &amount(10))
    });
    run.await.map(drop)
}

/// Cleans up and reads with a new process.
async fn look(
    rules: &Rules,
    server: &Arc<Server>,
    work: Work,
    told: Result<(), Error>,
) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    let (_, witness) = coordinator(rules, server, "witness", 0).await?;
    let mut report = witness.admin().janitor_pass().await?;
    for _ in 0..3 {
        if report.is_clean() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(12)).await;
        report = witness.admin().janitor_pass().await?;
    }
    if !report.is_clean() {
        wrong.push(format!("left over: {report:?}"));
    }
    if work == Work::Opening {
        // The newcomer may have any answer. The next process must find a domain that works.
        let more = witness.create_collection::<Raw>("more", None).await?;
        let insert = witness.transact::<_, Error, _>(async |tx| tx.insert(&more, "x", &amount(1)));
        insert.await?;
        return Ok(wrong);
    }
    let things = witness.collection::<Raw>("things").await?;
    let mut found = Vec::new();
    for id in ["a", "b", "slip"] {
        let thing = witness.reader().verified().get(&things, id).await?;
        found.push(thing.map(|thing| thing.as_str().to_owned()));
    }
    let expected = |amounts: [Option<i64>; 3]| {
        amounts.map(|n| n.map(|n| amount(n).as_str().to_owned())).to_vec()
    };
    let before = expected([Some(100), Some(100), None]);
    let after = match work {
        Work::OneDocument => expected([Some(90), Some(100), None]),
        _ => expected([Some(90), Some(110), Some(10)]),
    };
    if found != before && found != after {
        wrong.push(format!("half of it happened: {found:?}"));
    }
    let may_have = !matches!(work, Work::GivesUp | Work::Recovery);
    match &told {
        Ok(()) if may_have && found != after => wrong.push("told as done, and undone".to_owned()),
        Err(error) if error.kind() != ErrorKind::Unknown && found != before => {
            wrong.push(format!("told as not done ({:?}: {error}), and done", error.kind()));
        }
        _ if !may_have && found != before => wrong.push("changed without a writer".to_owned()),
        _ => {}
    }
    Ok(wrong)
}
