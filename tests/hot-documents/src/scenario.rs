//! The scenarios.

use crate::measure::Outcome;
use crate::network::Capacity;
use crate::store::millis;
use crate::workload::{Arrivals, Documents, Kind, ProcessSpec};
use crate::world::{Fault, Setting, run};

/// Returns the mean of a value over several runs.
pub fn mean(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).sum::<f64>() / outcomes.len().max(1) as f64
}

/// Returns the largest value of several runs.
pub fn most(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).fold(0.0, f64::max)
}

/// Returns the smallest value of several runs.
pub fn least(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).fold(f64::INFINITY, f64::min)
}

/// Runs a setting with several seeds, and checks each run.
///
/// The check is that of the invariants.
///
/// # Panics
///
/// If an acknowledged increment is lost, if an increment was made twice, or if a process held a
/// lock while it waited for the board.
#[must_use]
pub fn runs(setting: &Setting, seeds: &[u64]) -> Vec<Outcome> {
    let one = |seed: &u64| run(&Setting { seed: *seed, ..setting.clone() });
    let outcomes: Vec<Outcome> = seeds.iter().map(one).collect();
    for outcome in &outcomes {
        assert_eq!(outcome.lost, 0, "acknowledged increments are lost");
        assert_eq!(outcome.invented, 0, "increments that no transaction made");
        assert_eq!(outcome.waits_with_locks, 0, "a process waited for the board with a lock");
    }
    outcomes
}

/// Returns the same setting without the board.
#[must_use]
pub fn plain(setting: &Setting) -> Setting {
    let mut plain = setting.clone();
    for process in &mut plain.processes {
        process.is_plain = true;
    }
    plain
}

/// Returns the setting with this many equal processes.
#[must_use]
pub fn equal(setting: &Setting, spec: &ProcessSpec, processes: usize) -> Setting {
    Setting { processes: vec![spec.clone(); processes], ..setting.clone() }
}

/// Guests that run together with busy processes.
///
/// The busy processes have 32 clients in all.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The guests.
    pub guests: Vec<ProcessSpec>,
    /// The busy processes.
    pub busy: Vec<ProcessSpec>,
    /// The measured seconds.
    pub seconds: u64,
}

/// The result of [`Beside`].
#[derive(Clone, Copy, Debug)]
pub struct BesideOutcome {
    /// The median latency of a guest without the busy processes, in milliseconds.
    pub alone_median: f64,
    /// The 99th percentile of a guest without the busy processes.
    pub alone_p99: f64,
    /// The largest median of a guest.
    pub median: f64,
    /// The largest 99th percentile of a guest.
    pub p99: f64,
    /// The longest latency of a guest.
    pub longest: f64,
    /// Commits of the busy processes with guests, per commit without guests.
    pub busy_keep: f64,
}

impl Beside {
    /// Creates a run of guests with `processes` busy processes.
    #[must_use]
    pub fn new(guests: Vec<ProcessSpec>, processes: usize, seconds: u64) -> Self {
        Self { guests, busy: vec![ProcessSpec::new(1, 32 / processes); processes], seconds }
    }

    /// Runs the guests alone, the busy processes alone, and all together.
    #[must_use]
    pub fn measure(&self, seeds: &[u64]) -> BesideOutcome {
        let setting = |processes: Vec<ProcessSpec>| Setting {
            seconds: self.seconds,
            ..Setting::new(processes)
        };
        let alone = runs(&setting(self.guests[..1].to_vec()), seeds);
        let busy = runs(&setting(self.busy.clone()), seeds);
        let count = self.busy.len();
        let all = runs(&setting([self.busy.clone(), self.guests.clone()].concat()), seeds);
        let of_guests = |figures: &[f64]| figures[count..].iter().copied().fold(0.0, f64::max);
        let busy_commits = |outcome: &Outcome| outcome.commits[..count].iter().sum::<f64>();
        BesideOutcome {
            alone_median: mean(&alone, |outcome| outcome.median[0]),
            alone_p99: mean(&alone, |outcome| outcome.p99[0]),
            median: mean(&all, |outcome| of_guests(&outcome.median)),
            p99: mean(&all, |outcome| of_guests(&outcome.p99)),
            longest: most(&all, |outcome| of_guests(&outcome.longest)),
            busy_keep: mean(&all, busy_commits) / mean(&busy, Outcome::total),
        }
    }
}

/// Returns a process whose clients run read-only transactions.
#[must_use]
pub fn read_only(clients: usize) -> ProcessSpec {
    ProcessSpec { kind: Kind::ReadOnly, ..ProcessSpec::new(1, clients) }
}

/// Returns a process whose transactions are not merged.
#[must_use]
pub fn by_itself(clients: usize) -> ProcessSpec {
    ProcessSpec { is_by_itself: true, ..ProcessSpec::new(1, clients) }
}

/// Returns a process whose transactions write one document each.
#[must_use]
pub fn single_writes(clients: usize) -> ProcessSpec {
    ProcessSpec { kind: Kind::SingleWrite, ..ProcessSpec::new(1, clients) }
}

/// Returns a process at which transactions arrive at this rate.
#[must_use]
pub fn open(rate: f64) -> ProcessSpec {
    ProcessSpec { arrivals: Arrivals::Poisson(rate), ..ProcessSpec::new(1, 0) }
}

/// Returns the shop.
#[must_use]
pub fn shop(is_popular: bool) -> Setting {
    Setting { documents: Documents::Shop { is_popular }, seconds: 4, ..Setting::new(Vec::new()) }
}

/// Returns a server whose workers all processes share.
#[must_use]
pub fn server(workers: usize) -> Setting {
    let capacity = Capacity { workers: Some(workers), per_request: 200.0, per_document: 20.0 };
    Setting { capacity, ..Setting::new(Vec::new()) }
}

/// Returns the faults with their names.
///
/// The settings have four processes with 8 clients each.
#[must_use]
pub fn faults() -> Vec<(&'static str, Setting)> {
    let base = Setting::new(vec![ProcessSpec::new(1, 8); 4]);
    let with = |change: &dyn Fn(&mut Setting)| {
        let mut setting = base.clone();
        change(&mut setting);
        setting
    };
    let second = millis(1_000);
    vec![
        (
            "two processes die",
            with(&|setting| {
                setting.faults = vec![(3 * second, Fault::Kill(1)), (6 * second, Fault::Kill(2))];
            }),
        ),
        (
            "three holders die",
            with(&|setting| {
                let kill = Fault::KillHolderExcept(0);
                setting.faults =
                    vec![(2 * second, kill), (4 * second + 313, kill), (6 * second + 717, kill)];
            }),
        ),
        (
            "one process pauses 300 ms each second",
            with(&|setting| {
                let pause = |at: u64| (at * second + 7 * at, Fault::Pause(1, millis(300)));
                setting.faults = (1..10).map(pause).collect();
            }),
        ),
        ("1 % of the messages lost", with(&|setting| setting.loss = 0.01)),
        ("board 20 ms late", with(&|setting| setting.board.late = millis(20))),
        ("board 100 ms late", with(&|setting| setting.board.late = millis(100))),
        (
            "board emptied each 100 ms",
            with(&|setting| {
                let wipe = |at: u64| (at * millis(100), Fault::WipeBoard);
                setting.faults = (1..100).map(wipe).collect();
            }),
        ),
        (
            "board unreachable for 3 of 10 s",
            with(&|setting| setting.board.unreachable = Some((4 * second, 7 * second))),
        ),
        ("one process without the board", with(&|setting| setting.processes[0].is_plain = true)),
        (
            "clocks wrong by -1 s and 1 s",
            with(&|setting| {
                setting.processes[0].clock_error = -1_000_000;
                setting.processes[1].clock_error = 1_000_000;
            }),
        ),
    ]
}
