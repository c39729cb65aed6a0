//! Who is dead? Judged by the observer's own monotonic clock alone; a wrong verdict costs an abort,
//! never correctness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::{Key, Version};
use txn_protocol::ids::AttemptId;

/// The sign of life of a holder: where its record stands, which its heart moves. Where the locked document stands is none, for
/// whoever looks after others may touch it again and again.
type Sign = Option<Version>;

#[derive(Debug)]
struct Sighting {
    sign: Sign,
    since: Duration,
    last: Duration,
}

/// When something was looked at, on the monotonic clock. An answer may be late: what it shows stood there at some time between
/// the two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookedAt {
    pub(crate) asked: Duration,
    pub(crate) answered: Duration,
}

/// Remembers since when the holder of each lock that was met has shown no sign of life.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    /// By the holder and where it was met. No key: its record was seen as committed, wherever that
    /// stood.
    sightings: Mutex<BTreeMap<(AttemptId, Option<Key>), Sighting>>,
    /// Since when each collection of an incarnation is missing, at every look.
    missing: Mutex<BTreeMap<(Arc<str>, u64), Duration>>,
}

/// Sightings beyond this number are thinned out.
const MOST: usize = 10_000;

/// What a node says of a collection that was there this long ago is not said because it lags: a cluster drops a node
/// that does not follow within minutes.
pub(crate) const NO_NODE_LAGS_FOR: Duration = Duration::from_secs(600);

impl Liveness {
    /// Notes what was seen of the holder of a lock, and tells whether it has shown no sign of life for its lease.
    pub(crate) fn is_dead(
        &self,
        holder: AttemptId,
        at: &Key,
        sign: Sign,
        lease: Duration,
        looked: LookedAt,
    ) -> bool {
        self.stays((holder, Some(at.clone())), sign, lease, looked)
    }

    /// Notes that a record was seen as committed and not finished, and tells whether that has been
    /// so for one lease, wherever the record stands.
    pub(crate) fn stays_committed(&self, holder: AttemptId, lease: Duration, at: LookedAt) -> bool {
        self.stays((holder, None), None, lease, at)
    }

    /// Notes a sign, and tells whether it has been the same for one lease.
    fn stays(
        &self,
        of: (AttemptId, Option<Key>),
        sign: Sign,
        lease: Duration,
        LookedAt { asked, answered }: LookedAt,
    ) -> bool {
        let mut sightings = self.sightings.lock();
        if sightings.len() >= MOST {
            sightings.retain(|_, sighting| answered.saturating_sub(sighting.last) < lease * 10);
        }
        if sightings.len() >= MOST {
            // Who was met first may be dead, and is remembered.
            let mut since: Vec<Duration> = sightings.values().map(|seen| seen.since).collect();
            let (_, median, _) = since.select_nth_unstable(MOST / 2);
            let median = *median;
            sightings.retain(|_, sighting| sighting.since < median);
        }
        // A look that took long shows what may have changed a moment ago.
        let fresh = || Sighting { sign, since: answered, last: answered };
        let sighting = sightings.entry(of).or_insert_with(fresh);
        if sighting.sign != sign {
            *sighting = fresh();
        }
        sighting.last = answered;
        asked.saturating_sub(sighting.since) >= lease
    }

    /// The transaction is finished.
    pub(crate) fn forget_committed(&self, holder: AttemptId) {
        self.sightings.lock().remove(&(holder, None));
    }

    /// Notes that a collection is missing, and returns for how long.
    ///
    /// A collection of the same name and of another incarnation counts as missing. The duration
    /// begins with the first look of this process after the last one that found the collection.
    pub(crate) fn misses(
        &self,
        collection: &Arc<str>,
        incarnation: u64,
        now: Duration,
    ) -> Duration {
        let mut missing = self.missing.lock();
        let of = (collection.clone(), incarnation);
        if missing.len() >= MOST && !missing.contains_key(&of) {
            missing.clear();
        }
        now.saturating_sub(*missing.entry(of).or_insert(now))
    }

    /// Notes that a collection of this incarnation is there.
    pub(crate) fn finds(&self, collection: &Arc<str>, incarnation: u64) {
        self.missing.lock().remove(&(collection.clone(), incarnation));
    }

    /// The holder is decided.
    pub(crate) fn forget(&self, holder: AttemptId, at: &Key) {
        self.sightings.lock().remove(&(holder, Some(at.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::rules::testing::{tid, version};

    #[test]
    fn a_collection_that_was_found_meanwhile_is_missing_from_anew() {
        let (liveness, at) = (Liveness::default(), Duration::from_secs);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        assert_eq!(liveness.misses(&one, 1, at(1)), at(0));
        assert_eq!(liveness.misses(&one, 1, at(5)), at(4));
        assert_eq!(liveness.misses(&other, 1, at(5)), at(0), "each for itself");
        liveness.finds(&one, 2);
        assert_eq!(liveness.misses(&one, 1, at(8)), at(7), "another one has its name");
        liveness.finds(&one, 1);
        assert_eq!(liveness.misses(&one, 1, at(9)), at(0));
    }

    #[test]
    fn dead_is_what_stands_unchanged_for_a_lease() {
        let liveness = Liveness::default();
        let key = Key::new("c", "i");
        let looks = |record: u64, asked: u64, answered: u64| {
            let sign = Some(version(record));
            let (asked, answered) = (Duration::from_millis(asked), Duration::from_millis(answered));
            let at = LookedAt { asked, answered };
            liveness.is_dead(tid(1, 0), &key, sign, Duration::from_secs(1), at)
        };
        let sees = |record: u64, at: u64| looks(record, at, at);
        assert!(!sees(1, 0));
        assert!(!sees(1, 999));
        assert!(!sees(2, 1_000), "a heartbeat");
        assert!(!sees(2, 1_999));
        assert!(sees(2, 2_000));
        liveness.forget(tid(1, 0), &key);
        assert!(!sees(2, 2_001));
        assert!(!looks(3, 3_000, 4_100), "the heartbeat may have come with the answer");
        assert!(!looks(3, 4_101, 5_200), "nobody knows what stood there when it was answered");
        assert!(looks(3, 5_101, 5_102));
    }

    #[test]
    fn who_was_met_first_is_remembered_however_many_are_met() {
        let (liveness, lease) = (Liveness::default(), Duration::from_secs(1));
        let sees = |id: &str, millis: u64| {
            let at = Duration::from_millis(millis);
            let at = LookedAt { asked: at, answered: at };
            liveness.is_dead(tid(1, 0), &Key::new("c", id), None, lease, at)
        };
        assert!(!sees("first", 0));
        for n in 1..=3 * MOST as u64 {
            assert!(!sees(&n.to_string(), n / 100 + 1));
            assert!(liveness.sightings.lock().len() <= MOST);
        }
        assert!(sees("first", 1_000));
    }
}
