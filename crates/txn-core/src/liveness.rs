//! Who is dead? Judged by the observer's own monotonic clock alone; a wrong verdict costs an abort,
//! never correctness.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::{Key, Version};
use crate::tid::Tid;

/// The signs of life of a holder: where its record and the locked document stand.
type Signs = (Option<Version>, Option<Version>);

#[derive(Debug)]
struct Sighting {
    signs: Signs,
    since: Duration,
    last: Duration,
}

/// Remembers since when each lock that was met has stood unchanged.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    sightings: Mutex<BTreeMap<(Tid, Key), Sighting>>,
    /// Since when a collection of a transaction's members is known to be missing.
    missing: Mutex<BTreeMap<Tid, Duration>>,
}

/// Sightings beyond this number are thinned out.
const MOST: usize = 10_000;

/// What a node says of a collection that was there this long ago is not said because it lags: a cluster drops a node
/// that does not follow within minutes.
const NO_NODE_LAGS_FOR: Duration = Duration::from_secs(600);

impl Liveness {
    /// Notes what was seen of a holder, and tells whether it has stood unchanged for its lease.
    pub(crate) fn is_dead(
        &self,
        holder: Tid,
        at: &Key,
        signs: Signs,
        lease: Duration,
        now: Duration,
    ) -> bool {
        let mut sightings = self.sightings.lock();
        if sightings.len() >= MOST {
            sightings.retain(|_, sighting| now.saturating_sub(sighting.last) < lease * 10);
        }
        if sightings.len() >= MOST {
            sightings.clear();
        }
        let fresh = || Sighting { signs, since: now, last: now };
        let sighting = sightings.entry((holder, at.clone())).or_insert_with(fresh);
        if sighting.signs != signs {
            *sighting = fresh();
        }
        sighting.last = now;
        now.saturating_sub(sighting.since) >= lease
    }

    /// Notes that a collection of a transaction's members is missing, and tells whether this process knows that for so long
    /// that it can not be a node that lags.
    pub(crate) fn misses_for_long(&self, tid: Tid, now: Duration) -> bool {
        let mut missing = self.missing.lock();
        if missing.len() >= MOST && !missing.contains_key(&tid) {
            missing.clear();
        }
        now.saturating_sub(*missing.entry(tid).or_insert(now)) >= NO_NODE_LAGS_FOR
    }

    /// The holder is decided.
    pub(crate) fn forget(&self, holder: Tid, at: &Key) {
        self.sightings.lock().remove(&(holder, at.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{tid, version};

    #[test]
    fn dead_is_what_stands_unchanged_for_a_lease() {
        let liveness = Liveness::default();
        let key = Key::new("c", "i");
        let sees = |record: u64, at: u64| {
            let signs = (Some(version(record)), Some(version(1)));
            let (lease, now) = (Duration::from_secs(1), Duration::from_millis(at));
            liveness.is_dead(tid(1, 0), &key, signs, lease, now)
        };
        assert!(!sees(1, 0));
        assert!(!sees(1, 999));
        assert!(!sees(2, 1_000), "a heartbeat");
        assert!(!sees(2, 1_999));
        assert!(sees(2, 2_000));
        liveness.forget(tid(1, 0), &key);
        assert!(!sees(2, 2_001));
    }
}
