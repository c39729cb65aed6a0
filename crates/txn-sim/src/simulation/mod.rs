//! Runs of an application on a simulated server, each by a seed.

mod outcome;
mod run;
mod worker;

use std::ops::Range;

use txn_core::{Config, Domain};

use crate::FaultPlan;
use crate::machine::Recording;
pub use outcome::{Failure, Report};
use run::{Closures, Run};
pub use worker::Worker;

/// The environment variable with the only seed to run.
const SEED: &str = "TXN_SIM_SEED";

/// The error of a closure of a [`Simulation`].
///
/// The operator `?` converts every error into this type, and `into` every text.
///
/// ```
/// use txn_sim::BoxError;
///
/// fn check(sold: u32) -> Result<(), BoxError> {
///     if sold > 10 {
///         return Err(format!("{sold} pieces sold").into());
///     }
///     Ok(())
/// }
/// # assert!(check(1).is_ok() && check(11).is_err());
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Tests an application in many simulated runs, each with the faults of its seed.
///
/// A run has several processes, each with a [`Domain`] of its own on one simulated server. All
/// processes work in one thread and in virtual time. The seed chooses the faults within the [store
/// contract](txn_store::Store): lost and late answers, refused writes, conflicts, delays, stale
/// reads. Some processes pause or die at a random step, and start again.
///
/// ```
/// use std::cell::Cell;
///
/// use serde::{Deserialize, Serialize};
/// use txn_core::{Error, ErrorKind, Typed};
/// use txn_sim::Simulation;
///
/// #[derive(Serialize, Deserialize)]
/// struct Counter {
///     value: u32,
/// }
///
/// /// The model of the test, which no process loses.
/// #[derive(Default)]
/// struct Expected {
///     added: Cell<u32>,
///     begun: Cell<u32>,
/// }
///
/// let report = Simulation::new("counters").with_seeds(0..10).run(
///     async |domain| {
///         let counters = domain.create_collection::<Typed<Counter>>("counters", None).await?;
///         domain.transact(async |tx| tx.put(&counters, "visits", &Counter { value: 0 })).await?;
///         Ok(Expected::default())
///     },
///     async |worker, expected| {
///         let counters = worker.domain().collection::<Typed<Counter>>("counters").await?;
///         for _ in 0..3 {
///             expected.begun.set(expected.begun.get() + 1);
///             let add = async |tx: &txn_core::Transaction| {
///                 tx.update(&counters, "visits", |counter| counter.value += 1).await?;
///                 Ok::<_, Error>(())
///             };
///             match worker.domain().transact(add).await {
///                 Ok(()) => expected.added.set(expected.added.get() + 1),
///                 Err(error) if error.kind() == ErrorKind::Unknown => {}
///                 Err(error) => return Err(error.into()),
///             }
///         }
///         Ok(())
///     },
///     async |domain, expected| {
///         let counters = domain.collection::<Typed<Counter>>("counters").await?;
///         let found = domain.reader().verified().get(&counters, "visits").await?;
///         let value = found.map_or(0, |counter| counter.value);
///         let (added, begun) = (expected.added.get(), expected.begun.get());
///         assert!(added <= value && value <= begun, "{added} {value} {begun}");
///         Ok(())
///     },
/// );
/// println!("{report}");
/// ```
///
/// A run is the same each time if the application takes time from [`tokio::time`] and random
/// numbers from [`Worker::random`]. The clock of the system, `select!` of tokio without `biased`,
/// and the order of a `HashMap` differ.
#[derive(Clone, Debug)]
pub struct Simulation {
    application: String,
    seeds: Range<u64>,
    processes: usize,
    deaths: f64,
    faults: Option<FaultPlan>,
    config: Config,
}

impl Simulation {
    /// Creates a simulation of 100 seeds, with two processes on the domain of this name.
    ///
    /// ```
    /// let simulation = txn_sim::Simulation::new("shop").with_seeds(0..1_000).with_processes(3);
    /// ```
    #[must_use]
    pub fn new(domain: &str) -> Self {
        let (application, config) = (domain.to_owned(), Config::default());
        Self { application, seeds: 0..100, processes: 2, deaths: 0.3, faults: None, config }
    }

    /// Sets the seeds. More seeds find rarer bugs.
    ///
    /// The environment variable `TXN_SIM_SEED` replaces all seeds by one.
    ///
    /// ```
    /// let night = txn_sim::Simulation::new("shop").with_seeds(1_000..100_000);
    /// ```
    #[must_use]
    pub fn with_seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Sets one seed, that of a failed run.
    ///
    /// ```
    /// let again = txn_sim::Simulation::new("shop").with_seed(17);
    /// ```
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.with_seeds(seed..seed.saturating_add(1))
    }

    /// Sets the number of processes that run at the same time.
    ///
    /// ```
    /// let alone = txn_sim::Simulation::new("shop").with_processes(1);
    /// ```
    #[must_use]
    pub fn with_processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }

    /// Sets the probability that a process dies before its workload ends.
    ///
    /// A third of this probability is that of a pause, which may be longer than a lease.
    ///
    /// ```
    /// let no_deaths = txn_sim::Simulation::new("shop").with_deaths(0.0);
    /// ```
    #[must_use]
    pub fn with_deaths(mut self, probability: f64) -> Self {
        self.deaths = probability;
        self
    }

    /// Replaces the faults that each seed draws. The seed of the plan does not count.
    ///
    /// ```
    /// use txn_sim::{FaultPlan, Simulation};
    ///
    /// // Lost answers alone show how the application handles `Unknown`.
    /// let plan = FaultPlan::none(0).with_applied_unknown(0.1).with_lost_unknown(0.1);
    /// let simulation = Simulation::new("shop").with_faults(plan).with_deaths(0.0);
    /// ```
    #[must_use]
    pub fn with_faults(mut self, faults: FaultPlan) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Sets the configuration of each domain, except its clock, its entropy and its process name.
    ///
    /// ```
    /// use txn_core::Config;
    ///
    /// let config = Config::default().with_group_commit(Some(false));
    /// let simulation = txn_sim::Simulation::new("shop").with_config(config);
    /// ```
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Runs all seeds, as [`Simulation::try_run`] does, and panics at the first failure.
    ///
    /// The message has the seed. The call must be outside of a runtime, in a plain `#[test]`.
    ///
    /// # Panics
    /// If a run fails, or inside of a tokio runtime.
    #[track_caller]
    pub fn run<M>(
        &self,
        setup: impl AsyncFn(&Domain) -> Result<M, BoxError>,
        workload: impl AsyncFn(&Worker, &M) -> Result<(), BoxError>,
        check: impl AsyncFn(&Domain, &M) -> Result<(), BoxError>,
    ) -> Report {
        match self.try_run(setup, workload, check) {
            Ok(report) => report,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Runs all seeds, and returns the first failure.
    ///
    /// Each run has three parts:
    ///
    /// 1. `setup` runs without faults, and returns the model with the expectations of the test.
    /// 2. `workload` runs in each process. After an error or a death the process starts again, with
    ///    a new domain. The faults end after at most 40 s of virtual time.
    /// 3. `check` runs in a new process, after all processes have ended and their transactions have
    ///    been recovered.
    ///
    /// A run fails if a closure panics, if `setup` or `check` returns an error, or if `workload`
    /// returns an error or has no end after the faults.
    ///
    /// ```
    /// use txn_sim::Simulation;
    ///
    /// let failure = Simulation::new("shop")
    ///     .with_seeds(5..9)
    ///     .try_run(async |_| Ok(()), async |_, ()| Ok(()), async |_, ()| Err("sold twice".into()))
    ///     .unwrap_err();
    /// assert_eq!((failure.seed(), failure.reason()), (5, "the check failed: sold twice"));
    /// ```
    ///
    /// # Errors
    /// The first failure.
    ///
    /// # Panics
    /// Inside of a tokio runtime.
    pub fn try_run<M>(
        &self,
        setup: impl AsyncFn(&Domain) -> Result<M, BoxError>,
        workload: impl AsyncFn(&Worker, &M) -> Result<(), BoxError>,
        check: impl AsyncFn(&Domain, &M) -> Result<(), BoxError>,
    ) -> Result<Report, Failure> {
        let closures = Closures { setup, workload, check };
        let mut report = Report::default();
        for seed in self.chosen_seeds() {
            let first = Run::carry_out(self, seed, Recording::Nothing, &closures);
            report.add(&first.report);
            let Err(reason) = first.result else { continue };
            let second = Run::carry_out(self, seed, Recording::Lines, &closures);
            let is_repeatable = second.result.as_ref() == Err(&reason);
            return Err(Failure {
                seed,
                reason,
                is_repeatable,
                report: first.report,
                log: second.log,
            });
        }
        Ok(report)
    }

    fn chosen_seeds(&self) -> Range<u64> {
        let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        seed.map_or_else(|| self.seeds.clone(), |seed: u64| seed..seed.saturating_add(1))
    }
}
