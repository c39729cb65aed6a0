//! Many simulated runs on all cores.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use txn_protocol::rule::{Rule, Rules};

use crate::counts::{Counts, RunResult};
use crate::run::run_with;
use crate::scenario::Troubles;
use crate::schedules::{self, Schedule};

/// The result of many runs.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// The number of runs.
    pub worlds: u64,
    /// The sum of the counts of all runs.
    pub counts: Counts,
    /// The runs in which an invariant failed.
    pub failed: Vec<RunResult>,
}

/// The extent of a campaign.
#[derive(Clone, Debug)]
pub enum Extent {
    /// These seeds.
    Seeds(Range<u64>),
    /// Seeds from this one on, for this time.
    Time(u64, Duration),
}

/// The number of failed runs after which a campaign stops.
const ENOUGH: usize = 20;

/// Runs seeds on every core, by [`run`](crate::run) or [`run_twice`](crate::run_twice).
///
/// Calls `progress` after each seed.
pub fn campaign(
    extent: &Extent,
    run: impl Fn(u64) -> RunResult + Sync,
    progress: impl Fn(&Campaign) + Sync,
) -> Campaign {
    on_every_core(extent, ENOUGH, run, progress)
}

/// The run that detected the omission of a rule.
#[derive(Clone, Debug)]
pub struct Noticed {
    /// A seed, or the name of a schedule.
    pub by: String,
    /// The violations of that run.
    pub violations: Vec<String>,
    /// How often the engine asked for the rule in that run.
    pub asked: u64,
}

/// Runs the simulation without one rule until an invariant fails.
///
/// The schedules run first, then the seeds.
///
/// Returns `None` if every invariant held in all runs. Then the omission was not detected.
#[must_use]
pub fn catch(rule: Rule, seeds: Range<u64>, troubles: Troubles) -> Option<Noticed> {
    schedules::OF_RULES
        .into_iter()
        .find_map(|schedule| catch_in(rule, schedule))
        .or_else(|| catch_by_seed(rule, seeds, troubles))
}

/// Runs one schedule without one rule.
#[must_use]
pub fn catch_in(rule: Rule, (name, schedule): Schedule) -> Option<Noticed> {
    let rules = Rules::without(rule);
    let violations = schedule(&rules);
    let noticed = Noticed { by: format!("{name:?}"), violations, asked: rules.asked() };
    (!noticed.violations.is_empty()).then_some(noticed)
}

/// Runs seeds without one rule, until an invariant fails.
#[must_use]
pub fn catch_by_seed(rule: Rule, seeds: Range<u64>, troubles: Troubles) -> Option<Noticed> {
    let asked = Mutex::new(BTreeMap::new());
    let without = |seed| {
        let rules = Rules::without(rule);
        let result = run_with(seed, troubles, &rules);
        asked.lock().insert(seed, rules.asked());
        result
    };
    let caught = on_every_core(&Extent::Seeds(seeds), 1, without, |_| {});
    let first = caught.failed.into_iter().min_by_key(|result| result.seed)?;
    let asked = asked.lock().get(&first.seed).copied().unwrap_or_default();
    Some(Noticed { by: format!("seed {}", first.seed), violations: first.violations, asked })
}

fn on_every_core(
    extent: &Extent,
    enough: usize,
    run: impl Fn(u64) -> RunResult + Sync,
    progress: impl Fn(&Campaign) + Sync,
) -> Campaign {
    let (first, last, end) = match extent {
        Extent::Seeds(seeds) => (seeds.start, seeds.end, None),
        Extent::Time(first, span) => (*first, u64::MAX, Some(Instant::now() + *span)),
    };
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let result = Mutex::new(Campaign::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return;
            }
            let one = run(seed);
            let mut result = result.lock();
            result.worlds += 1;
            result.counts.add(&one.counts);
            if !one.violations.is_empty() {
                result.failed.push(one);
                stop.fetch_or(result.failed.len() >= enough, Ordering::Relaxed);
            }
            progress(&result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    result.into_inner()
}
