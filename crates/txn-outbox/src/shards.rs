//! The shards that a processor holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use txn_lock::{Guard, Held};

use crate::name::QueueName;
use crate::shard::Shard;

/// The lanes of one shard: they end before it is given back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) tasks: TaskTracker,
    pub(crate) draining: CancellationToken,
    /// Queues of which this process has handled an event under this claim, or tried to: their next event kills no process.
    pub(crate) proven: Arc<Mutex<BTreeSet<QueueName>>>,
}

/// A shard that is held.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) guard: Guard,
    pub(crate) lanes: Lanes,
    /// Its number in the order of arrival.
    pub(crate) arrival: u64,
}

/// The shards that a processor holds.
#[derive(Debug, Default)]
pub(crate) struct Shards {
    pub(crate) holdings: Mutex<BTreeMap<Shard, Holding>>,
    /// Those that are being given back.
    pub(crate) leaving: Mutex<BTreeSet<Shard>>,
    /// How many shards have arrived, and how many of them `changed` has reported.
    arrivals: Mutex<(u64, u64)>,
}

impl Shards {
    pub(crate) fn held(&self) -> BTreeSet<Shard> {
        let holdings = self.holdings.lock();
        let held = holdings.iter().filter(|(_, holding)| !holding.guard.is_lost());
        held.map(|(shard, _)| shard.clone()).collect()
    }

    /// Whether a shard is held, or was until a moment ago.
    pub(crate) fn has(&self, shard: &Shard) -> bool {
        self.holdings.lock().contains_key(shard)
    }

    /// Adds a shard that is held from now on.
    pub(crate) fn add(&self, shard: Shard, guard: Guard) {
        // `changed` reports the arrival only after the shard can be found.
        let mut arrivals = self.arrivals.lock();
        arrivals.0 += 1;
        let holding = Holding { guard, lanes: Lanes::default(), arrival: arrivals.0 };
        self.holdings.lock().insert(shard, holding);
    }

    /// How many shards have arrived.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.lock().0
    }

    /// The claim and the lanes of a shard that is held and was among the first `arrivals`.
    pub(crate) fn claim(&self, shard: &Shard, arrivals: u64) -> Option<(Held, Lanes)> {
        let holdings = self.holdings.lock();
        let holding = holdings.get(shard).filter(|holding| !holding.guard.is_lost())?;
        (holding.arrival <= arrivals).then(|| (holding.guard.held(), holding.lanes.clone()))
    }

    /// Whether a shard came since the last call.
    pub(crate) fn changed(&self) -> bool {
        let mut arrivals = self.arrivals.lock();
        let (came, asked) = *arrivals;
        arrivals.1 = came;
        came > asked
    }
}
