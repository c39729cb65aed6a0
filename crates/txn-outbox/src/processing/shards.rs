//! The shards that a processor holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use txn_lock::{Guard, Held};

use crate::queue::name::QueueName;
use crate::queue::shard::Shard;

/// The lanes of one shard. The release of the shard waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) tasks: TaskTracker,
    pub(crate) draining: CancellationToken,
    /// Queues of which this process has finished a delivery under this claim.
    ///
    /// Their next event therefore needs no note of its start.
    pub(crate) proven: Arc<Mutex<BTreeSet<QueueName>>>,
}

/// A shard under the lock of this processor.
#[derive(Debug)]
pub(crate) struct HeldShard {
    pub(crate) guard: Guard,
    pub(crate) lanes: Lanes,
    /// The number of the shard in the order of arrival.
    pub(crate) arrival: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Shards {
    pub(crate) held_shards: Mutex<BTreeMap<Shard, HeldShard>>,
    /// The shards that wait for their lanes before the release.
    pub(crate) releasing: Mutex<BTreeSet<Shard>>,
    /// The arrived shards, and those of them that `changed` has reported.
    arrivals: Mutex<(u64, u64)>,
}

impl Shards {
    pub(crate) fn held(&self) -> BTreeSet<Shard> {
        let held_shards = self.held_shards.lock();
        let held = held_shards.iter().filter(|(_, held_shard)| !held_shard.guard.is_lost());
        held.map(|(shard, _)| shard.clone()).collect()
    }

    /// Whether the processor holds a shard, or held it until recently.
    pub(crate) fn has(&self, shard: &Shard) -> bool {
        self.held_shards.lock().contains_key(shard)
    }

    /// Adds a newly held shard.
    pub(crate) fn add(&self, shard: Shard, guard: Guard) {
        // `changed` reports the arrival only after the shard can be found.
        let mut arrivals = self.arrivals.lock();
        arrivals.0 += 1;
        let held_shard = HeldShard { guard, lanes: Lanes::default(), arrival: arrivals.0 };
        self.held_shards.lock().insert(shard, held_shard);
    }

    /// The number of arrived shards.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.lock().0
    }

    /// The claim and the lanes of a held shard.
    ///
    /// `None` if the shard is not among the first `arrivals`.
    pub(crate) fn claim(&self, shard: &Shard, arrivals: u64) -> Option<(Held, Lanes)> {
        let held_shards = self.held_shards.lock();
        let held_shard = held_shards.get(shard).filter(|held_shard| !held_shard.guard.is_lost())?;
        (held_shard.arrival <= arrivals)
            .then(|| (held_shard.guard.held(), held_shard.lanes.clone()))
    }

    /// Whether a shard arrived since the last call.
    pub(crate) fn changed(&self) -> bool {
        let mut arrivals = self.arrivals.lock();
        let (arrived, reported) = *arrivals;
        arrivals.1 = arrived;
        arrived > reported
    }
}
