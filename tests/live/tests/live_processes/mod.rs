//! Coordinators as real processes, killed and paused at each step.

mod killed;
mod paused;
mod recoverers;

use std::path::Path;
use std::time::Duration;

use txn_core::{Domain, Options, TransactionOutcome, WaitFor};
use txn_fixtures::bank::{self, Account, Accounts};
use txn_fixtures::coordinator::{ACCOUNTS, Coordinator, Job, Task, transfer};
use txn_fixtures::fixture::{Fixture, all_is_applied, soon};
use txn_testkit::proxy::{Matching, Proxy};

/// Short, so that other processes recover soon.
const LEASE: Duration = Duration::from_millis(400);

/// The lease of a process that dies.
///
/// No other process looks at its locks in this time.
///
/// The lease is so long that the process sends no heartbeat. A slow server may carry out a
/// heartbeat whose answer the commit no longer awaits. The server then refuses the first request
/// with the commit, and the process sends another one. A hold at the first request would kill the
/// process before its commit.
const WITHOUT_HEARTBEATS: Duration = Duration::from_secs(10);

const OPENING: i64 = 1_000;

const COORDINATOR: &str = env!("CARGO_BIN_EXE_txn-test-coordinator");

/// One domain, with a proxy for the processes and a direct witness.
struct Stage {
    proxy: Proxy,
    url: String,
    witness: Domain,
    accounts: Accounts,
    /// The number of transfers that happened.
    happened: i64,
}

impl Stage {
    async fn on(fixture: &Fixture) -> Self {
        let proxy = Proxy::start(fixture.plain.url()).await.expect("starts");
        let witness = fixture.domain_on(fixture.store(), Fixture::config().with_lease(LEASE)).await;
        let accounts = bank::open(&witness, &fixture.name("accounts")).await;
        let names: Vec<String> = ACCOUNTS.map(str::to_owned).to_vec();
        bank::fund(&witness, &accounts, &names, OPENING).await;
        Self { url: proxy.url(), proxy, witness, accounts, happened: 0 }
    }

    fn job(&self, task: Task, bulk_items: usize) -> Job {
        Job {
            url: self.url.clone(),
            domain: self.witness.name().to_owned(),
            collection: self.accounts.name().to_owned(),
            lease_ms: u64::try_from(LEASE.as_millis()).expect("short"),
            bulk_items,
            task,
        }
    }

    /// Starts a process. Holds have to be armed before.
    fn start(&self, task: Task, bulk_items: usize) -> Coordinator {
        Coordinator::start(Path::new(COORDINATOR), &self.job(task, bulk_items))
    }

    /// Starts a process that will be killed during its transfer. Holds have to be armed before.
    fn start_mortal(&self) -> Coordinator {
        let lease_ms = u64::try_from(WITHOUT_HEARTBEATS.as_millis()).expect("short");
        let job = Job { lease_ms, ..self.job(Task::Transfer, 500) };
        Coordinator::start(Path::new(COORDINATOR), &job)
    }

    /// Runs another process's transfer over the same documents.
    async fn rewrite(&mut self) {
        // A process that finds the lock of this transfer touches its record, and the proxy would
        // hold that touch instead of the commit.
        let options = Options::default().with_wait_for(WaitFor::Apply);
        // A server with too much work refuses requests for a while.
        let done = soon(async {
            loop {
                match transfer(&self.witness, &self.accounts, &options).await {
                    Err(error) if error.kind().is_transient() => {}
                    done => return done,
                }
            }
        });
        done.await.expect("gets through");
        self.happened += 1;
    }

    async fn is_committed(&self, tid: txn_core::AttemptId) -> bool {
        match self.witness.outcome(tid).await.expect("known") {
            TransactionOutcome::Committed { .. } => true,
            TransactionOutcome::Aborted => false,
            other => panic!("{tid} is {other:?}"),
        }
    }

    /// Checks that nothing is left, and that the balances fit.
    ///
    /// The balances must be those of the transfers.
    async fn audit(&self, context: &str) {
        soon(self.proxy.settle()).await;
        all_is_applied(&self.witness).await;
        let names: Vec<String> = ACCOUNTS.map(str::to_owned).to_vec();
        let found = bank::balances(&self.witness, &self.accounts, &names).await;
        let n = self.happened;
        let expected = [OPENING - 2 * n, OPENING + n, OPENING + n, OPENING].map(Some);
        assert_eq!(found, expected, "{context}: {n} transfers happened");
        let slip = self.witness.reader().verified().get(&self.accounts, "slip").await;
        let expected = (n % 2 == 1).then_some(Account { balance: 0 });
        assert_eq!(slip.expect("reads"), expected, "{context}");
    }

    async fn ends(self, fixture: &Fixture) {
        fixture.settle(&self.witness).await;
        self.proxy.shutdown().await;
    }
}

/// The apply request for this document.
///
/// Each document must have its own request.
fn apply_of(id: &str) -> Matching {
    txn_fixtures::wire::applies().with_body(&format!("\"_id\":\"{id}\""))
}

txn_fixtures::in_turn! { txn_fixtures::on_server:
    killed::before_the_commit;
    killed::at_the_commit;
    killed::after_the_commit;
    paused::past_the_lease;
    recoverers::killed_during_a_roll_forward;
    recoverers::two_and_the_owner_after_the_commit;
    recoverers::two_and_the_owner_before_the_commit;
}
