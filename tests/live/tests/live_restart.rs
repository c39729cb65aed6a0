//! A server that crashes under load and restarts with its data.
//!
//! Transfers wait or fail with a reason, and no committed transfer is lost or happens twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use txn_core::{AttemptId, Config, Domain, ErrorKind, LockMode, Options, TransactionOutcome};
use txn_fixtures::bank::{self, Accounts};
use txn_fixtures::fixture::{Fixture, PATIENCE, all_is_applied};
use txn_testkit::servers::{ServerKind, up_private};

const ACCOUNTS: usize = 6;
const WORKERS: usize = 8;
const INITIAL: i64 = 1_000;

/// The minimum number of committed transfers before the crash, and after it.
const LEAST: usize = 60;

/// One server at a time, because two concurrent starts are slow.
static ONE: Mutex<()> = Mutex::const_new(());

/// A transfer: from an account, to another one.
type Transfer = (usize, usize);

/// The transfers of one worker, by outcome.
#[derive(Debug, Default)]
struct Ledger {
    committed: Vec<Transfer>,
    unknown: Vec<(AttemptId, Transfer)>,
    failed: usize,
}

struct Load {
    domain: Domain,
    accounts: Accounts,
    names: Vec<String>,
    over: AtomicBool,
    committed: AtomicUsize,
}

impl Load {
    async fn work(&self, worker: usize) -> Ledger {
        let mut ledger = Ledger::default();
        let mut turn = worker;
        while !self.over.load(Ordering::SeqCst) {
            turn += 1;
            let transfer = (turn % ACCOUNTS, (turn + 1 + worker % (ACCOUNTS - 1)) % ACCOUNTS);
            let names = [transfer.0, transfer.1].map(|n| self.names[n].clone());
            // Half of the workers are ready to wait for the server.
            let deadline = worker.is_multiple_of(2).then_some(Duration::from_secs(2));
            let options = Options::default()
                .with_lock_mode(match turn.is_multiple_of(5) {
                    true => LockMode::AtRead,
                    false => LockMode::AtCommit,
                })
                .with_timeout(deadline);
            match bank::spread(&self.domain, &self.accounts, &names, &options).await {
                Ok(_) => {
                    ledger.committed.push(transfer);
                    self.committed.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => match (error.kind(), error.tid()) {
                    (ErrorKind::Unknown, Some(tid)) => ledger.unknown.push((tid, transfer)),
                    (ErrorKind::Unavailable | ErrorKind::Conflict, _) => ledger.failed += 1,
                    _ => panic!("not the error of a server that is away: {error:?}"),
                },
            }
        }
        ledger
    }

    async fn reach(&self, committed: usize) {
        let began = Instant::now();
        while self.committed.load(Ordering::SeqCst) < committed {
            assert!(began.elapsed() < 2 * PATIENCE, "transfers do not go on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn survives_a_crash(kind: ServerKind) {
    let _one = ONE.lock().await;
    let blocking = tokio::task::spawn_blocking(move || up_private(kind).expect("starts"));
    let mut server = blocking.await.expect("no panic");
    let fixture = Fixture::at(server.url()).await;
    let domain = fixture.domain_on(fixture.store(), Config::default()).await;
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(ACCOUNTS);
    bank::fund(&domain, &accounts, &names, INITIAL).await;
    let load = Arc::new(Load {
        domain: domain.clone(),
        accounts: accounts.clone(),
        names: names.clone(),
        over: AtomicBool::new(false),
        committed: AtomicUsize::new(0),
    });
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        let load = load.clone();
        workers.spawn(async move { load.work(worker).await });
    }
    load.reach(LEAST).await;
    let blocking = tokio::task::spawn_blocking(move || {
        server.nodes()[0].kill().expect("dies");
        // The call returns when the server is healthy.
        server.restart_node(0).expect("comes back");
        server
    });
    let server = blocking.await.expect("no panic");
    let at_restart = load.committed.load(Ordering::SeqCst);
    load.reach(at_restart + LEAST).await;
    load.over.store(true, Ordering::SeqCst);
    let ledgers = workers.join_all().await;
    domain.shutdown(PATIENCE).await;

    let witness = fixture.domain().await;
    let mut expected = vec![INITIAL; ACCOUNTS];
    let mut happened = Vec::new();
    let (mut unknown, mut failed) = (0, 0);
    for ledger in ledgers {
        happened.extend(ledger.committed);
        failed += ledger.failed;
        for (tid, transfer) in ledger.unknown {
            unknown += 1;
            match witness.outcome(tid).await.expect("known") {
                TransactionOutcome::Committed { .. } => happened.push(transfer),
                TransactionOutcome::Aborted => {}
                other => panic!("{tid} is {other:?}"),
            }
        }
    }
    for (from, to) in &happened {
        expected[*from] -= 1;
        expected[*to] += 1;
    }
    let count = happened.len();
    println!("{kind}: {count} committed, {unknown} were unknown, {failed} failed");
    assert!(unknown + failed > 0, "the load did not notice the crash");
    all_is_applied(&witness).await;
    let found = bank::balances(&witness, &accounts, &names).await;
    assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), expected);
    assert!(witness.shutdown(PATIENCE).await, "drained");
    tokio::task::spawn_blocking(move || drop(server)).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elasticsearch_crashes_under_load() {
    survives_a_crash(ServerKind::Elasticsearch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opensearch_crashes_under_load() {
    survives_a_crash(ServerKind::OpenSearch).await;
}
