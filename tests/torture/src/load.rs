//! The two loads of a round, and their checks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio_util::sync::CancellationToken;
use txn_core::clock::Clock;
use txn_core::event::{Event, Observer};
use txn_core::store::Store;
use txn_core::{Config, Domain, Error};
use txn_es::{EsConfig, EsStore};
use txn_fixtures::clock::MovedClock;
use txn_fixtures::complaints::Complaint;
use txn_fixtures::ledger::{Ledger, Plan};
use txn_histories::History;
use txn_histories::history::Model;
use txn_histories::workload::{Counters, Counts};
use txn_histories::{Fleet, Stop, Workload, WorkloadConfig, check};

use crate::refusals::{Counted, Refusals};

/// The maximum time for an operation that must not fail.
const PATIENCE: Duration = Duration::from_secs(120);

/// The size of a load on the command line.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Size {
    /// Coordinators, each like a separate process: 2; 1 for an overload.
    #[arg(long)]
    pub coordinators: Option<usize>,
    /// Workers of each coordinator: 2; 500 for an overload. The lists have as many workers.
    #[arg(long)]
    pub workers: Option<usize>,
    /// Accounts of the bank: 30; 2,000 for an overload. With few accounts the coordinators contend.
    #[arg(long)]
    pub accounts: Option<usize>,
    /// An additional field of each account, in KiB: none. 16 for an overload.
    #[arg(long)]
    pub note_kib: Option<usize>,
}

impl Size {
    /// Returns the shape of a load; `usual` has the default values.
    #[must_use]
    pub fn or(self, usual: Shape) -> Shape {
        Shape {
            coordinators: self.coordinators.unwrap_or(usual.coordinators),
            workers: self.workers.unwrap_or(usual.workers),
            accounts: self.accounts.unwrap_or(usual.accounts),
            note: self.note_kib.map_or(usual.note, |kib| kib * 1_024),
            ..usual
        }
    }
}

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Coordinators, each like a separate process.
    pub coordinators: usize,
    /// Workers of each coordinator.
    pub workers: usize,
    /// Accounts of the bank.
    pub accounts: usize,
    /// The size of an additional field of each account, in bytes.
    pub note: usize,
    /// Workers of each coordinator that read all accounts at once.
    pub readers: usize,
    /// The seed of the transactions.
    pub seed: u64,
}

impl Shape {
    /// The load of the other targets than an overload.
    pub const USUAL: Self =
        Self { coordinators: 2, workers: 2, accounts: 30, note: 0, readers: usize::MAX, seed: 0 };
}

/// The durations of a load, which depend on its faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) lease: Duration,
    pub(crate) janitor_interval: Duration,
    /// The time of a transaction.
    pub(crate) timeout: Duration,
    pub(crate) request_timeout: Duration,
}

impl Timing {
    /// The durations for one server.
    pub(crate) const ONE_SERVER: Self = Self {
        lease: Duration::from_millis(500),
        janitor_interval: Duration::from_secs(2),
        timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(3),
    };

    async fn connect(self, urls: Vec<String>) -> Result<Arc<dyn Store>, String> {
        let config = EsConfig::new(urls).map_err(|error| error.to_string())?;
        let config = config.with_request_timeout(self.request_timeout);
        let store = EsStore::connect(config).await.map_err(|error| error.to_string())?;
        Ok(Arc::new(store))
    }

    /// Connects a coordinator, whose refused writes and reads are counted.
    async fn connect_counted(
        self,
        urls: Vec<String>,
        refusals: &Arc<Refusals>,
    ) -> Result<Arc<dyn Store>, String> {
        Ok(Arc::new(Counted::new(self.connect(urls).await?, refusals.clone())))
    }
}

/// The documented condition under which a history may be no serial one.
const CONDITION: &str = "  docs/isolation.md excludes one case: a transaction validates a read \
                         without a lock, and the primary loses the write that was read";

/// Counts recoveries of dead transactions.
#[derive(Debug, Default)]
struct Recoveries(AtomicU64);

impl Observer for Recoveries {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::RolledForward { .. } | Event::AbortedByRecovery { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A bank with an exact ledger, and lists with a checked history.
#[derive(Debug)]
pub(crate) struct Load {
    ledger: Ledger,
    fleet: Arc<Fleet>,
    clocks: Vec<Arc<MovedClock>>,
    witness: Domain,
    collection: String,
    recoveries: Arc<Recoveries>,
    refusals: Arc<Refusals>,
    counters: Arc<Counters>,
    /// A word that permits further errors, in their messages.
    permitted: Option<&'static str>,
    seed: u64,
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

/// The acknowledged transactions of both loads. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) ledger: Ledger,
    counters: Arc<Counters>,
}

impl Progress {
    /// Returns the number of acknowledged transactions so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        let counts = self.ledger.counts();
        counts.acknowledged + counts.ticks + counts.looks + self.counters.now().acknowledged
    }
}

/// Waits until a transaction of the workload has ended.
async fn begins(counters: &Counters, before: Counts) {
    while counters.now() == before {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Load {
    /// Opens both loads on the coordinators' and the witness's addresses.
    ///
    /// No fault concerns the addresses of the witness.
    ///
    /// The collections are `<name>-ledger` and `<name>-lists`.
    pub(crate) async fn open(
        name: &str,
        shape: Shape,
        timing: Timing,
        urls_of: impl Fn(usize) -> Vec<String>,
        witness: Vec<String>,
    ) -> Result<Self, String> {
        let config = Config::default()
            .with_lease(timing.lease)
            .with_janitor_interval(Some(timing.janitor_interval))
            .with_timeout(timing.timeout);
        let mut coordinators = Vec::new();
        let (refusals, mut clocks) = (Arc::new(Refusals::default()), Vec::new());
        for coordinator in 0..shape.coordinators {
            let urls = urls_of(coordinator);
            coordinators.push(timing.connect_counted(urls, &refusals).await?);
            clocks.push(Arc::new(MovedClock::default()));
        }
        let witness = timing.connect(witness).await?;
        let recoveries = Arc::new(Recoveries::default());
        let config = config.with_observer(Some(recoveries.clone()));
        let plan = Plan::new(name)
            .with_accounts(shape.accounts)
            .with_config(config.clone())
            .with_clocks(clocks.iter().map(|clock| clock.clone() as Arc<dyn Clock>).collect())
            .with_seed(shape.seed)
            .with_note(shape.note)
            .with_readers(shape.readers);
        let ledger = Ledger::open(plan, coordinators.clone(), witness.clone()).await;
        let failed = |error: Error| error.to_string();
        let lists = format!("{name}-lists");
        let mut domains = Vec::new();
        for (store, clock) in coordinators.into_iter().zip(&clocks) {
            let config = config.clone().with_clock(clock.clone());
            domains.push(Domain::open_or_create(store, &lists, config).await.map_err(failed)?);
        }
        let patient = Config::default().with_lease(config.lease()).with_timeout(PATIENCE);
        let witness = Domain::open_or_create(witness, &lists, patient).await.map_err(failed)?;
        Ok(Self {
            ledger,
            fleet: Fleet::new(domains),
            clocks,
            witness,
            collection: lists,
            recoveries,
            refusals,
            counters: Arc::default(),
            permitted: None,
            seed: shape.seed,
            rounds: 0,
            lists: Lists::default(),
            violations: Vec::new(),
        })
    }

    /// Returns the bank. Clones of a ledger share their state.
    pub(crate) fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// Returns the wall clock of each coordinator.
    pub(crate) fn clocks(&self) -> &[Arc<MovedClock>] {
        &self.clocks
    }

    /// Returns the name of the collection of lists.
    pub(crate) fn lists(&self) -> &str {
        &self.collection
    }

    /// Returns a view of the acknowledged transactions.
    pub(crate) fn progress(&self) -> Progress {
        Progress { ledger: self.ledger(), counters: self.counters.clone() }
    }

    /// Permits the kinds `Misconfigured` and `Overloaded` in messages with this word.
    ///
    /// See [`Complaint::is_permitted`]. Other errors are violations.
    pub(crate) fn permit(&mut self, word: Option<&'static str>) {
        self.permitted = word;
        self.ledger.permit(word);
    }

    /// Returns the duration and the outcome of the longest transaction so far.
    pub(crate) fn longest(&self) -> (Duration, String) {
        self.ledger.longest().max(self.counters.longest())
    }

    /// Returns errors of callers and refusals of the server, by line.
    pub(crate) fn refused(&self) -> Vec<(String, u64)> {
        let mut errors = BTreeMap::<String, u64>::new();
        for complaints in [self.ledger.complaints(), self.counters.complaints()] {
            for ((_, kind), complaint) in complaints {
                *errors.entry(format!("errors of callers: {kind}")).or_default() += complaint.count;
            }
        }
        errors.into_iter().chain(self.refusals.lines()).collect()
    }

    /// Runs both loads until `faults` completes, and checks them.
    pub(crate) async fn round(&mut self, workers: usize, faults: impl Future<Output = ()>) {
        self.rounds += 1;
        let config = WorkloadConfig::new(Model::ListAppend)
            .with_collection(self.collection.clone())
            .with_prefix(format!("round-{}", self.rounds))
            .with_seed(self.seed + self.rounds)
            .with_workers(workers)
            .with_keys(20)
            .with_skew(0.5)
            .with_timeout(Duration::from_secs(10));
        let workload = Workload::new(config).with_counters(self.counters.clone());
        let (before, complaints) = (self.counters.now(), self.counters.complaints());
        // Before the first fault, create all collections.
        if let Err(error) = workload.open(&self.witness).await {
            self.violations.push(format!("the lists cannot be opened: {error}"));
            return;
        }
        let (over, ended) = (CancellationToken::new(), CancellationToken::new());
        let until = Stop::default().when(over.clone());
        let (_, history) = tokio::join!(
            async {
                // The lists open their collection in each process. Afterwards a lost master or a
                // full load may delay this.
                ended.run_until_cancelled(begins(&self.counters, before)).await;
                self.ledger
                    .run(workers, async {
                        faults.await;
                        over.cancel();
                    })
                    .await;
            },
            async {
                let history = self.append(&workload, &until).await;
                ended.cancel();
                history
            },
        );
        self.judge_errors(&complaints);
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

    /// Runs the list transactions. The opening of their collection may need several tries.
    async fn append(&self, workload: &Workload, until: &Stop) -> Result<History, Error> {
        let began = Instant::now();
        loop {
            match workload.run(&self.fleet, until).await {
                Err(error) if error.kind().is_transient() && began.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                other => return other,
            }
        }
    }

    /// Reports errors of the lists that are no refusal. The ledger reports its own ones.
    fn judge_errors(&mut self, before: &BTreeMap<((), String), Complaint>) {
        for (key, complaint) in self.counters.complaints() {
            let known = before.get(&key).map_or(0, |before| before.count);
            if complaint.count > known && !complaint.is_permitted(self.permitted) {
                self.violations.push(format!("callers of the lists received {complaint:?}"));
            }
        }
    }

    /// Shows the violations of a round, and the live line.
    ///
    /// `known`: the number of violations before the round.
    pub(crate) fn show_round(&self, round: u64, known: usize, began: Instant, bar: &ProgressBar) {
        for violation in &self.violations[known..] {
            bar.suspend(|| eprintln!("VIOLATION in round {round}: {violation}\n{CONDITION}"));
        }
        bar.set_position(began.elapsed().as_secs());
        bar.set_message(self.line());
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
