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
}

/// The shards that a processor holds.
#[derive(Debug, Default)]
pub(crate) struct Shards {
    pub(crate) holdings: Mutex<BTreeMap<Shard, Holding>>,
    /// Those that are being given back.
    pub(crate) leaving: Mutex<BTreeSet<Shard>>,
    /// Whether one came since somebody asked.
    pub(crate) came: Mutex<bool>,
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

    /// What a lane needs of a shard, if that is held.
    pub(crate) fn claim(&self, shard: &Shard) -> Option<(Held, Lanes)> {
        let holdings = self.holdings.lock();
        let holding = holdings.get(shard).filter(|holding| !holding.guard.is_lost())?;
        Some((holding.guard.held(), holding.lanes.clone()))
    }

    /// Whether a shard came since the last call.
    pub(crate) fn changed(&self) -> bool {
        std::mem::take(&mut *self.came.lock())
    }
}
