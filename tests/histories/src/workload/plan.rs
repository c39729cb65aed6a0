//! Random plans of transactions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use txn_core::{LockMode, Options, ReadMode};

use super::WorkloadConfig;
use crate::history::{Micro, Model, Seen};

/// The longest patience of a caller that drops its future.
///
/// The time is about two commits of a slow store.
const ABANDONED: Duration = Duration::from_millis(20);

/// A planned transaction.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) micros: Vec<Micro>,
    pub(super) how: How,
    /// Reads all its keys in one round trip first.
    pub(super) together: bool,
    /// The pause before the commit.
    pub(super) pause: Duration,
    /// Whether the transaction ends with an error after its operations.
    ///
    /// The error is the closure's own. The reads precede the writes.
    pub(super) gives_up: bool,
    /// When the caller drops the future, if it does.
    pub(super) abandoned_after: Option<Duration>,
}

impl Plan {
    /// The visible operations.
    ///
    /// A transaction that gives up leaves no write, but its reads must belong together.
    pub(super) fn visible(&self) -> Vec<Micro> {
        let is_visible = |micro: &&Micro| !self.gives_up || matches!(micro, Micro::Read { .. });
        self.micros.iter().filter(is_visible).cloned().collect()
    }
}

#[derive(Clone, Debug)]
pub(super) enum How {
    Transaction(Box<Options>),
    /// A read by a reader that asks the primary.
    VerifiedRead,
}

/// The keys in use and the next values; shared by all workers.
#[derive(Debug)]
pub(super) struct Supply {
    most_writes: u32,
    keys: Mutex<Keys>,
    next_value: AtomicU64,
}

#[derive(Debug)]
struct Keys {
    /// The keys, each with the number of its planned writes.
    used: Vec<(u64, u32)>,
    next: u64,
}

impl Supply {
    pub(super) fn new(config: &WorkloadConfig) -> Self {
        let count = config.keys.max(1) as u64;
        let keys = Keys { used: (0..count).map(|key| (key, 0)).collect(), next: count };
        Self {
            most_writes: config.max_writes_per_key,
            keys: Mutex::new(keys),
            next_value: AtomicU64::new(1),
        }
    }

    fn read(&self, slot: usize) -> u64 {
        self.keys.lock().used[slot].0
    }

    /// A key, and a value that no other transaction writes.
    fn write(&self, slot: usize) -> (u64, u64) {
        let mut keys = self.keys.lock();
        if keys.used[slot].1 >= self.most_writes {
            keys.used[slot] = (keys.next, 0);
            keys.next += 1;
        }
        keys.used[slot].1 += 1;
        (keys.used[slot].0, self.next_value.fetch_add(1, Ordering::Relaxed))
    }
}

/// The random numbers of one worker.
#[derive(Debug)]
pub(super) struct Planner {
    config: WorkloadConfig,
    rng: SmallRng,
    /// For each slot the sum of the weights up to it.
    weights: Vec<f64>,
}

impl Planner {
    pub(super) fn new(config: &WorkloadConfig, worker: u64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=config.keys.max(1)).map(|n| {
            sum += (n as f64).powf(-config.skew);
            sum
        });
        let seed = config.seed ^ worker.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let weights = weights.collect();
        Self { config: config.clone(), rng: SmallRng::seed_from_u64(seed), weights }
    }

    fn slot(&mut self) -> usize {
        let whole = self.weights.last().copied().unwrap_or(1.0);
        let at = self.rng.random::<f64>() * whole;
        self.weights.partition_point(|sum| *sum <= at).min(self.weights.len() - 1)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.rng.random::<f64>() < share
    }

    pub(super) fn next(&mut self, supply: &Supply) -> Plan {
        let read = |key| Micro::Read { key, seen: Seen::Nil };
        let pause = self.config.max_pause.mul_f64(self.rng.random());
        let together = self.chance(0.3);
        if self.chance(self.config.verified_reads) {
            let micros = vec![read(supply.read(self.slot()))];
            let how = How::VerifiedRead;
            return Plan {
                micros,
                how,
                together: false,
                pause,
                gives_up: false,
                abandoned_after: None,
            };
        }
        let read_only = self.chance(self.config.read_only);
        let count = self.rng.random_range(1..=self.config.max_operations.max(1));
        let mut micros = Vec::with_capacity(count);
        for _ in 0..count {
            let slot = self.slot();
            if read_only || self.chance(self.config.reads) {
                micros.push(read(supply.read(slot)));
                continue;
            }
            let (key, value) = supply.write(slot);
            micros.push(match self.config.model {
                Model::ListAppend => Micro::Append { key, value },
                Model::Register => Micro::Write { key, value },
            });
        }
        let options = Options::default()
            .with_read_only(read_only)
            .with_read_mode(match self.chance(self.config.lock_reads) {
                true => ReadMode::Lock,
                false => ReadMode::Validate,
            })
            .with_lock_mode(match self.chance(self.config.pessimistic) {
                true => LockMode::AtRead,
                false => LockMode::AtCommit,
            })
            .with_timeout(Some(self.config.timeout));
        let how = How::Transaction(Box::new(options));
        let reads = |micro: &Micro| matches!(micro, Micro::Read { .. });
        let gives_up = self.chance(self.config.given_up) && micros.iter().any(reads);
        if gives_up {
            micros.sort_by_key(|micro| !reads(micro));
        }
        let abandoned = self.chance(self.config.abandoned);
        let abandoned_after = abandoned.then(|| ABANDONED.mul_f64(self.rng.random()));
        Plan { micros, how, together, pause, gives_up, abandoned_after }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn plans(config: &WorkloadConfig, count: usize) -> Vec<Plan> {
        let (supply, mut planner) = (Supply::new(config), Planner::new(config, 0));
        (0..count).map(|_| planner.next(&supply)).collect()
    }

    #[test]
    fn seed_decides_the_plans() {
        let text = |seed| {
            let config = WorkloadConfig::new(Model::ListAppend).with_seed(seed);
            format!("{:?}", plans(&config, 50))
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn plans_have_unique_values_and_skewed_keys() {
        let config = WorkloadConfig::new(Model::ListAppend).with_max_writes_per_key(10);
        let mut values = std::collections::BTreeSet::new();
        let mut writes: BTreeMap<u64, u32> = BTreeMap::new();
        for plan in plans(&config, 500) {
            assert!((1..=6).contains(&plan.micros.len()));
            for (key, value) in plan.micros.iter().filter_map(Micro::written) {
                assert!(values.insert(value), "{value} twice");
                *writes.entry(key).or_default() += 1;
            }
        }
        assert!(writes.len() > 20, "{writes:?}");
        assert!(writes.values().all(|count| *count <= 10), "{writes:?}");

        let config = config.with_skew(1.5).with_max_writes_per_key(u32::MAX);
        let mut used: BTreeMap<u64, u32> = BTreeMap::new();
        for micro in plans(&config, 500).iter().flat_map(|plan| &plan.micros) {
            *used.entry(micro.key()).or_default() += 1;
        }
        assert!(used[&0] > 3 * used[&5], "{used:?}");
    }
}
