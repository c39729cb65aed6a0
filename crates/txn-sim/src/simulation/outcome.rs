//! The results of a simulation.

use std::error::Error;
use std::fmt;

/// The number of lines of the log that the text of a failure has.
const SHOWN_LINES: usize = 40;

/// The counts of the runs of a [`Simulation`](crate::Simulation).
///
/// ```
/// use txn_sim::Simulation;
///
/// let report = Simulation::new("shop").with_seeds(0..3).run(
///     async |_| Ok(()),
///     async |_, ()| Ok(()),
///     async |_, ()| Ok(()),
/// );
/// assert_eq!(report.runs(), 3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub(super) runs: u64,
    pub(super) faults: u64,
    pub(super) deaths: u64,
    pub(super) failed: u64,
}

impl Report {
    pub(super) fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.faults += other.faults;
        self.deaths += other.deaths;
        self.failed += other.failed;
    }

    /// Returns the number of runs.
    ///
    /// ```
    /// assert_eq!(txn_sim::Report::default().runs(), 0);
    /// ```
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Returns the number of faults of the network and the server.
    ///
    /// ```
    /// # let report = txn_sim::Report::default();
    /// println!("{} faults in {} runs", report.faults(), report.runs());
    /// ```
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Returns how often a process died.
    ///
    /// ```
    /// # let report = txn_sim::Report::default();
    /// println!("{} deaths in {} runs", report.deaths(), report.runs());
    /// ```
    #[must_use]
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Returns how often a workload returned an error during the faults.
    ///
    /// A workload that handles the errors of its transactions fails rarely.
    ///
    /// ```
    /// # let report = txn_sim::Report::default();
    /// println!("{} errors in {} runs", report.failed_workloads(), report.runs());
    /// ```
    #[must_use]
    pub fn failed_workloads(&self) -> u64 {
        self.failed
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, faults, deaths, failed } = self;
        write!(f, "{runs} runs, {faults} faults, {deaths} deaths, {failed} failed workloads")
    }
}

/// A run that failed.
///
/// The text of a failure has the seed, the reason, and the last writes of the run.
///
/// ```
/// use txn_sim::Simulation;
///
/// let failure = Simulation::new("shop")
///     .try_run(async |_| Ok(()), async |_, ()| Ok(()), async |_, ()| Err("sold twice".into()))
///     .unwrap_err();
/// assert!(failure.to_string().contains("TXN_SIM_SEED=0"));
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    pub(super) seed: u64,
    pub(super) reason: String,
    pub(super) is_repeatable: bool,
    pub(super) report: Report,
    pub(super) log: Vec<String>,
}

impl Failure {
    /// Returns the seed of the run.
    ///
    /// ```
    /// # use txn_sim::{Failure, Simulation};
    /// fn again(failure: &Failure) -> Simulation {
    ///     Simulation::new("shop").with_seed(failure.seed())
    /// }
    /// ```
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the error or the panic message of the closure that failed.
    ///
    /// ```
    /// # fn look(failure: &txn_sim::Failure) {
    /// assert!(failure.reason().contains("sold twice"));
    /// # }
    /// ```
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether a second run of the seed failed for the same reason.
    ///
    /// If not, the application depends on more than the seed.
    ///
    /// ```
    /// # fn look(failure: &txn_sim::Failure) {
    /// assert!(failure.is_repeatable(), "the application reads the clock of the system");
    /// # }
    /// ```
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// Returns the writes, starts and deaths of the second run, with their virtual times.
    ///
    /// ```
    /// # fn look(failure: &txn_sim::Failure) {
    /// for line in failure.log() {
    ///     println!("{line}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn log(&self) -> &[String] {
        &self.log
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, reason, is_repeatable, report, log } = self;
        writeln!(f, "seed {seed}: {reason}")?;
        match is_repeatable {
            true => writeln!(f, "repeat it with TXN_SIM_SEED={seed}; {report}")?,
            false => writeln!(f, "a second run differed: more than the seed decides; {report}")?,
        }
        let last = &log[log.len().saturating_sub(SHOWN_LINES)..];
        last.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Error for Failure {}
