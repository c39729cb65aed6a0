//! Many worlds, side by side.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use txn_protocol::guard::{self, Guard};

use crate::counts::{Counts, Verdict};
use crate::run::run;
use crate::scenario::Troubles;
use crate::schedules;

/// What many worlds came to.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// How many worlds ran.
    pub worlds: u64,
    /// How much happened in all of them.
    pub counts: Counts,
    /// Those in which something did not hold.
    pub failed: Vec<Verdict>,
}

/// How long a campaign goes on.
#[derive(Clone, Debug)]
pub enum Extent {
    /// These seeds.
    Seeds(Range<u64>),
    /// Seeds from this one on, for so long.
    Time(u64, Duration),
}

/// After so many failed worlds a campaign gives up: they have told enough.
const ENOUGH: usize = 20;

/// Runs worlds on every core. `progress` is told after each of them.
pub fn campaign(
    extent: &Extent,
    troubles: Troubles,
    progress: impl Fn(&Campaign) + Sync,
) -> Campaign {
    on_every_core(extent, ENOUGH, |seed| run(seed, troubles), progress)
}

/// Who noticed that a guard was gone, and by what.
#[derive(Clone, Debug)]
pub struct Noticed {
    /// A seed, or the name of a schedule.
    pub by: String,
    /// What did not hold.
    pub violations: Vec<String>,
}

/// Runs the schedules, and then worlds, without one guard until something does not hold. `None` if everything held in all of
/// them: nobody noticed that the guard was gone.
#[must_use]
pub fn catch(guard: Guard, seeds: Range<u64>, troubles: Troubles) -> Option<Noticed> {
    for (name, schedule) in schedules::OF_GUARDS {
        let violations = guard::without(guard, schedule);
        if !violations.is_empty() {
            return Some(Noticed { by: format!("{name:?}"), violations });
        }
    }
    let unguarded = |seed| guard::without(guard, || run(seed, troubles));
    let caught = on_every_core(&Extent::Seeds(seeds), 1, unguarded, |_| {});
    let first = caught.failed.into_iter().min_by_key(|verdict| verdict.seed)?;
    Some(Noticed { by: format!("seed {}", first.seed), violations: first.violations })
}

fn on_every_core(
    extent: &Extent,
    enough: usize,
    run: impl Fn(u64) -> Verdict + Sync,
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
            let verdict = run(seed);
            let mut result = result.lock();
            result.worlds += 1;
            result.counts.add(&verdict.counts);
            if !verdict.violations.is_empty() {
                result.failed.push(verdict);
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
