//! The scenarios.

use crate::measure::Outcome;
use crate::world::{Setting, run};

/// The mean of a figure over several runs.
pub fn mean(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).sum::<f64>() / outcomes.len().max(1) as f64
}

/// The largest figure of several runs.
pub fn most(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).fold(0.0, f64::max)
}

/// The smallest figure of several runs.
pub fn least(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).fold(f64::INFINITY, f64::min)
}

/// Runs a setting with several seeds.
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
