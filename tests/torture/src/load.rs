//! The two loads of a round, and their checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use txn_core::event::{Event, Observer};
use txn_core::store::Store;
use txn_core::{Config, Domain};
use txn_fixtures::ledger::{Ledger, Plan};
use txn_histories::history::Model;
use txn_histories::workload::Counts;
use txn_histories::{Fleet, Stop, Workload, WorkloadConfig, check};

/// The maximum time for an operation that must not fail.
const PATIENCE: Duration = Duration::from_secs(120);

/// The size of a load.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Shape {
    /// Coordinators, each like a separate process.
    #[arg(long, default_value_t = 2)]
    pub coordinators: usize,
    /// Workers of each coordinator.
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
    /// Accounts of the bank. With few accounts the coordinators contend.
    #[arg(long, default_value_t = 30)]
    pub accounts: usize,
}

/// Counts recoveries of dead transactions.
#[derive(Debug, Default)]
struct Recoveries(AtomicU64);

impl Observer for Recoveries {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Replayed { .. } | Event::AbortedByRecovery { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A bank with an exact ledger, and lists with a checked history.
#[derive(Debug)]
pub(crate) struct Load {
    ledger: Ledger,
    fleet: Arc<Fleet>,
    witness: Domain,
    collection: String,
    recoveries: Arc<Recoveries>,
    rounds: u64,
    lists: Lists,
    pub(crate) violations: Vec<String>,
}

/// List-append transactions by their outcome.
#[derive(Debug, Default)]
struct Lists {
    acknowledged: u64,
    aborted: u64,
    unknown: u64,
}

/// Waits for further transfers.
///
/// # Errors
/// If there are none for a long time, as after a fault that does not end.
pub(crate) async fn goes_on(ledger: &Ledger, transfers: u64) -> Result<(), String> {
    let waited = tokio::time::timeout(PATIENCE, ledger.acknowledges(transfers)).await;
    waited.map_err(|_| format!("there are no {transfers} transfers within {PATIENCE:?}"))
}

/// Waits until a transaction of the workload has ended.
async fn begins(workload: &Workload) {
    let counters = workload.counters();
    while counters.now() == Counts::default() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Load {
    /// Opens both loads on several coordinators, and on a witness without faults.
    ///
    /// The collections are `<name>-ledger` and `<name>-lists`.
    pub(crate) async fn open(
        name: &str,
        shape: Shape,
        config: Config,
        coordinators: Vec<Arc<dyn Store>>,
        witness: Arc<dyn Store>,
    ) -> Result<Self, String> {
        let recoveries = Arc::new(Recoveries::default());
        let config = config.with_observer(Some(recoveries.clone()));
        let plan = Plan::new(name).with_accounts(shape.accounts).with_config(config.clone());
        let ledger = Ledger::open(plan, coordinators.clone(), witness.clone()).await;
        let failed = |error: txn_core::Error| error.to_string();
        let lists = format!("{name}-lists");
        let mut domains = Vec::new();
        for store in coordinators {
            domains
                .push(Domain::open_or_create(store, &lists, config.clone()).await.map_err(failed)?);
        }
        let patient = Config::default().with_lease(config.lease()).with_timeout(PATIENCE);
        let witness = Domain::open_or_create(witness, &lists, patient).await.map_err(failed)?;
        Ok(Self {
            ledger,
            fleet: Fleet::new(domains),
            witness,
            collection: lists,
            recoveries,
            rounds: 0,
            lists: Lists::default(),
            violations: Vec::new(),
        })
    }

    /// Returns the bank. Clones of a ledger share their state.
    pub(crate) fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// Runs both loads until `faults` completes, and checks them.
    pub(crate) async fn round(&mut self, workers: usize, faults: impl Future<Output = ()>) {
        self.rounds += 1;
        let config = WorkloadConfig::new(Model::ListAppend)
            .with_collection(self.collection.clone())
            .with_prefix(format!("round-{}", self.rounds))
            .with_seed(self.rounds)
            .with_workers(workers)
            .with_keys(20)
            .with_skew(0.5)
            .with_timeout(Duration::from_secs(10));
        let workload = Workload::new(config);
        // Before the first fault, create all collections.
        if let Err(error) = workload.open(&self.witness).await {
            self.violations.push(format!("the lists cannot be opened: {error}"));
            return;
        }
        let (over, ended) = (CancellationToken::new(), CancellationToken::new());
        let until = Stop::default().when(over.clone());
        let (_, history) = tokio::join!(
            self.ledger.run(workers, async {
                // The workload opens its collection in each process, which needs a master.
                ended.run_until_cancelled(begins(&workload)).await;
                faults.await;
                over.cancel();
            }),
            async {
                let history = workload.run(&self.fleet, &until).await;
                ended.cancel();
                history
            },
        );
        self.violations.extend(self.ledger.verify().await);
        match history {
            Err(error) => self.violations.push(format!("the lists cannot be run: {error}")),
            Ok(mut history) => {
                if let Err(error) = workload.settle(&mut history, &self.witness).await {
                    self.violations.push(format!("the lists cannot be settled: {error}"));
                }
                let verdict = check(&history);
                if !verdict.holds_with(1) {
                    self.violations.push(format!("lists of round {}: {verdict}", self.rounds));
                }
                self.lists.acknowledged += verdict.acknowledged;
                self.lists.aborted += verdict.aborted;
                self.lists.unknown += verdict.unknown;
            }
        }
    }

    /// Returns the counts so far in one line.
    pub(crate) fn line(&self) -> String {
        let (counts, violations) = (self.ledger.counts(), self.violations.len());
        let (acknowledged, unknown) = (counts.acknowledged, counts.unknown);
        format!("{acknowledged} transfers, {unknown} unknown, {violations} violations")
    }

    /// Returns the counts, line by line.
    pub(crate) fn counted(&self) -> Vec<(String, u64)> {
        let counts = self.ledger.counts();
        let lines = [
            ("transfers acknowledged", counts.acknowledged),
            ("transfers aborted", counts.aborted),
            ("transfers unknown", counts.unknown),
            ("  of these settled as committed", counts.settled_committed),
            ("  of these settled as aborted", counts.settled_aborted),
            ("one-document transactions acknowledged", counts.ticks),
            ("one-document transactions unknown", counts.ticks_unknown),
            ("reads of all accounts", counts.looks),
            ("reads and one-document transactions failed", counts.failed),
            ("list transactions acknowledged", self.lists.acknowledged),
            ("list transactions aborted", self.lists.aborted),
            ("list transactions unknown, then settled", self.lists.unknown),
            ("recoveries by other processes", self.recoveries.0.load(Ordering::Relaxed)),
        ];
        lines.into_iter().map(|(what, count)| (what.to_owned(), count)).collect()
    }

    /// Shuts all processes down.
    pub(crate) async fn close(self) {
        for number in 0..self.fleet.size() {
            self.fleet.domain(number).shutdown(PATIENCE).await;
        }
        self.witness.shutdown(PATIENCE).await;
        self.ledger.close().await;
    }
}
