//! The rounds of jobs, by seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::fault::Fault;

/// The largest number of jobs of a round.
const MOST_JOBS: usize = 3;

/// The time until a job begins, in milliseconds.
const DELAY: std::ops::Range<u64> = 0..2_000;

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) fault: Fault,
    pub(super) delay: Duration,
    /// The seed of a job's choices, such as that of a shard.
    pub(super) seed: u64,
}

/// The jobs of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Jobs that overlap.
    pub(super) together: Vec<Job>,
    /// A job after the overlapping ones. The servers refuse other jobs on a closed index.
    pub(super) apart: Option<Job>,
}

/// Endless rounds. Equal seeds and jobs give equal rounds.
#[derive(Debug)]
pub(super) struct Schedule {
    random: Rng,
    jobs: Vec<Fault>,
    /// The remaining jobs of the current turn.
    turn: Vec<Fault>,
}

impl Schedule {
    /// Creates the schedule of these jobs.
    ///
    /// Without jobs, the schedule has all jobs.
    ///
    /// # Errors
    /// If an element of `jobs` is no job of a server's life.
    pub(super) fn new(seed: u64, jobs: &[Fault]) -> Result<Self, String> {
        if let Some(other) = jobs.iter().find(|job| !Fault::OF_LIFE.contains(job)) {
            return Err(format!("{other} is no job of a server's life"));
        }
        let jobs = if jobs.is_empty() { &Fault::OF_LIFE } else { jobs };
        Ok(Self { random: Rng::with_seed(seed), jobs: jobs.to_vec(), turn: Vec::new() })
    }

    /// Returns the names of all jobs that the schedule has.
    pub(super) fn planned(&self) -> Vec<String> {
        self.jobs.iter().map(ToString::to_string).collect()
    }
}

impl Iterator for Schedule {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        if self.turn.is_empty() {
            self.turn.clone_from(&self.jobs);
            self.random.shuffle(&mut self.turn);
        }
        let mut round = Round::default();
        for _ in 0..self.random.usize(1..=MOST_JOBS) {
            let Some(fault) = self.turn.pop() else { break };
            let delay = Duration::from_millis(self.random.u64(DELAY));
            let job = Job { fault, delay, seed: self.random.u64(..) };
            match fault {
                Fault::CloseAndOpen => round.apart = Some(job),
                _ => round.together.push(job),
            }
        }
        Some(round)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.together.iter().chain(&self.apart);
        let names: Vec<String> = jobs.map(|job| job.fault.to_string()).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seed: u64, jobs: &[Fault], count: usize) -> Vec<Round> {
        Schedule::new(seed, jobs).expect("known jobs").take(count).collect()
    }

    #[test]
    fn equal_seeds_give_equal_rounds() {
        assert_eq!(rounds(7, &[], 50), rounds(7, &[], 50));
        assert_ne!(rounds(7, &[], 50), rounds(8, &[], 50));
    }

    #[test]
    fn each_job_comes_before_any_repeats() {
        let rounds = rounds(1, &[], 30);
        let mut names = Vec::new();
        for round in &rounds {
            let jobs = round.together.iter().chain(&round.apart);
            names.extend(jobs.map(|job| job.fault.to_string()));
        }
        let mut turn = names[..Fault::OF_LIFE.len()].to_vec();
        turn.sort_unstable();
        turn.dedup();
        assert_eq!(turn.len(), Fault::OF_LIFE.len());
    }

    #[test]
    fn rounds_have_one_to_three_jobs() {
        let of = |round: &Round| round.together.len() + usize::from(round.apart.is_some());
        let sizes: Vec<usize> = rounds(1, &[], 100).iter().map(of).collect();
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&1), Some(&MOST_JOBS)));
        assert!(rounds(1, &[Fault::Flush], 3).iter().all(|round| of(round) == 1));
        assert!(Schedule::new(1, &[Fault::KillPrimary]).is_err());
    }
}
