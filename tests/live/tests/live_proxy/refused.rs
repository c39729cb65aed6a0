//! A write is carried out and refused, then the server is unreachable.
//!
//! The outage lasts until the caller has given up. No caller gets the answer that nothing happened,
//! and no money is made.

use std::time::Duration;

use txn_core::{Domain, Error, ErrorKind, Options, WaitFor};
use txn_fixtures::bank::{self, Accounts, account};
use txn_fixtures::fixture::{Fixture, PATIENCE};
use txn_fixtures::wire;
use txn_testkit::proxy::{Fault, Matching, Outage, Proxy, Refusal};

use super::{coordinator, proxy};

const OPENING: i64 = 100;

/// How long the owner tries, and then releases its locks.
const DEADLINE: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(1);

/// When the server is back, counted from the begin of the transaction.
///
/// The test must pass even if a busy machine changes the order.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// While the owner releases its locks.
    WithinTheRelease,
    /// After the owner has given up the release, too.
    Later,
}

impl Back {
    fn after(self) -> Duration {
        match self {
            Self::WithinTheRelease => DEADLINE + LEASE / 4,
            Self::Later => DEADLINE + 2 * LEASE,
        }
    }
}

/// The operation and its faulty request.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lock,
    Commit,
    Apply,
    Finish,
    OneDocument,
}

impl Step {
    const ALL: [Self; 5] = [Self::Lock, Self::Commit, Self::Apply, Self::Finish, Self::OneDocument];

    fn matching(self) -> Matching {
        match self {
            Self::Lock => wire::locks(),
            Self::Commit => wire::commits(),
            // A single write is new content without a lock.
            Self::Apply | Self::OneDocument => wire::applies(),
            Self::Finish => wire::finishes(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    number: usize,
    step: Step,
    refusal: Refusal,
    outage: Outage,
    back: Back,
}

pub(crate) async fn refused_write_before_an_outage_is_in_doubt(fixture: &Fixture) {
    let mut cases = Vec::new();
    for step in Step::ALL {
        for refusal in Refusal::ALL {
            for (outage, back) in [
                (Outage::Refuses, Back::WithinTheRelease),
                (Outage::Refuses, Back::Later),
                (Outage::Silent, Back::WithinTheRelease),
            ] {
                cases.push(Case { number: cases.len(), step, refusal, outage, back });
            }
        }
    }
    let founder = fixture.domain().await;
    let accounts = bank::open(&founder, &fixture.name("accounts")).await;
    for case in &cases {
        bank::fund(&founder, &accounts, &names(case), OPENING).await;
    }
    // Concurrently: each stage has its own accounts, proxy and process.
    let mut stages = Vec::new();
    for case in &cases {
        stages.push(Stage::of(fixture, *case).await);
    }
    let told = futures::future::join_all(stages.into_iter().map(Stage::run)).await;
    let witness = fixture.domain().await;
    let mut report = witness.admin().janitor_pass().await.expect("passes");
    for _ in 0..10 {
        if report.is_clean() {
            break;
        }
        tokio::time::sleep(LEASE).await;
        report = witness.admin().janitor_pass().await.expect("passes");
    }
    let mut wrong = Vec::new();
    if !report.is_clean() {
        wrong.push(format!("left over: {report:?}"));
    }
    for (case, told) in cases.iter().zip(told) {
        let found = bank::balances(&witness, &accounts, &names(case)).await;
        let moved = match case.step {
            Step::OneDocument => [OPENING + 1, OPENING, OPENING],
            _ => [OPENING - 2, OPENING + 1, OPENING + 1],
        };
        let (before, moved) = ([OPENING; 3].map(Some), moved.map(Some));
        let holds = match &told {
            Ok(()) => found == moved,
            Err(error) if error.kind() == ErrorKind::Unknown => found == moved || found == before,
            Err(_) => found == before,
        };
        if !holds {
            wrong.push(format!("{case:?}: {found:?}, told {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    founder.shutdown(PATIENCE).await;
    fixture.settle(&witness).await;
}

fn names(case: &Case) -> Vec<String> {
    (0..3).map(|n| format!("c{}-a{n}", case.number)).collect()
}

/// A transaction with a request that is carried out but refused.
///
/// An outage follows.
struct Stage {
    case: Case,
    proxy: Proxy,
    domain: Domain,
    accounts: Accounts,
}

impl Stage {
    async fn of(fixture: &Fixture, case: Case) -> Self {
        let proxy = proxy(fixture).await;
        let domain = coordinator(fixture, &proxy, Fixture::config().with_lease(LEASE)).await;
        let accounts = bank::open(&domain, &fixture.name("accounts")).await;
        Self { case, proxy, domain, accounts }
    }

    async fn run(self) -> Result<(), Error> {
        let Self { case, proxy, domain, accounts } = self;
        let names = names(&case);
        proxy.inject_then(case.step.matching(), Fault::Refuse(case.refusal), case.outage);
        let ends = async {
            tokio::time::sleep(case.back.after()).await;
            while !proxy.is_away() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            proxy.end_outage();
        };
        let options = Options::default().with_wait_for(WaitFor::Apply).with_timeout(Some(DEADLINE));
        let moves = async {
            if let Step::OneDocument = case.step {
                let write = domain.run::<_, Error, _>(&options, async |tx| {
                    let found = tx.get(&accounts, names[0].as_str()).await?.expect("exists");
                    tx.put(&accounts, names[0].as_str(), &account(found.balance + 1))
                });
                return write.await.map(drop);
            }
            bank::spread(&domain, &accounts, &names, &options).await.map(drop)
        };
        let moves = tokio::time::timeout(PATIENCE, moves);
        let ends = tokio::time::timeout(PATIENCE, ends);
        let (told, ended) = futures::future::join(moves, ends).await;
        let told = told.unwrap_or_else(|_| panic!("{case:?}: the transaction does not end"));
        ended.unwrap_or_else(|_| panic!("{case:?}: no write was refused; {told:?}"));
        let counts = proxy.counts();
        assert_eq!(counts.of(Fault::Refuse(case.refusal).kind()), 1, "{case:?} was not refused");
        proxy.clear();
        domain.shutdown(PATIENCE).await;
        proxy.shutdown().await;
        told
    }
}
