//! The failure detector: judges holders by the observer's monotonic clock.
//!
//! A holder is dead if its record did not change for one lease. A wrong verdict costs an abort,
//! never correctness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use txn_protocol::ids::AttemptId;
use txn_store::{Key, Version};

/// The sign of life of a holder: the version of its record.
///
/// A heartbeat changes this version. The version of the locked document is no sign of life, because
/// recovering processes may touch the document repeatedly.
type Sign = Option<Version>;

#[derive(Debug)]
struct Sighting {
    sign: Sign,
    since: Duration,
    last: Duration,
}

/// The time of a read, on the monotonic clock.
///
/// The answer may be late: it shows a state between `asked` and `answered`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookedAt {
    pub(crate) asked: Duration,
    pub(crate) answered: Duration,
}

/// Remembers since when each lock holder has shown no sign of life.
#[derive(Debug, Default)]
pub(crate) struct FailureDetector {
    /// By the holder and the observed document.
    ///
    /// `None` means a record that was read as committed, at any version.
    sightings: Mutex<BTreeMap<(AttemptId, Option<Key>), Sighting>>,
    /// Since when each collection of an incarnation is missing at every read.
    missing: Mutex<BTreeMap<(Arc<str>, u64), Duration>>,
}

/// The maximum number of sightings before the detector drops some.
const MOST: usize = 10_000;

/// The longest time for which a node of a cluster lags.
///
/// A cluster drops a node that does not follow within minutes. So a node that reports an older
/// collection as missing does not lag.
pub(crate) const NO_NODE_LAGS_FOR: Duration = Duration::from_secs(600);

impl FailureDetector {
    /// Notes a sign of a lock holder.
    ///
    /// Returns whether the holder has shown no new sign of life for its lease.
    pub(crate) fn note_sign(
        &self,
        holder: AttemptId,
        at: &Key,
        sign: Sign,
        lease: Duration,
        looked: LookedAt,
    ) -> bool {
        self.note((holder, Some(at.clone())), sign, lease, looked)
    }

    /// Notes that a record is committed and not finished.
    ///
    /// Returns whether the record has stayed so for one lease, at any version.
    pub(crate) fn note_committed(&self, holder: AttemptId, lease: Duration, at: LookedAt) -> bool {
        self.note((holder, None), None, lease, at)
    }

    /// Notes a sign. Returns whether the sign has been the same for one lease.
    fn note(
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
            // The oldest half stays, because its holders are the likeliest to be dead. Many
            // sightings may have the time of one read, so some with the median's time stay, too.
            let mut since: Vec<Duration> = sightings.values().map(|seen| seen.since).collect();
            let (_, median, _) = since.select_nth_unstable(MOST / 2);
            let median = *median;
            let older = sightings.values().filter(|seen| seen.since < median).count();
            let mut room = (MOST / 2).saturating_sub(older);
            sightings.retain(|_, seen| {
                let of_median = seen.since == median && room > 0;
                room -= usize::from(of_median);
                seen.since < median || of_median
            });
        }
        // A slow answer may show a change of a moment ago, so the sighting starts at the answer.
        let fresh = || Sighting { sign, since: answered, last: answered };
        let sighting = sightings.entry(of).or_insert_with(fresh);
        if sighting.sign != sign {
            *sighting = fresh();
        }
        sighting.last = answered;
        asked.saturating_sub(sighting.since) >= lease
    }

    /// Drops the sighting of a committed record, because the transaction is finished.
    pub(crate) fn forget_committed(&self, holder: AttemptId) {
        self.sightings.lock().remove(&(holder, None));
    }

    /// Notes that a collection is missing, and returns for how long.
    ///
    /// A collection with the same name but another incarnation counts as missing. The duration
    /// begins with the first failed read after the last successful one.
    pub(crate) fn note_missing(
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

    /// Notes that a collection of this incarnation exists.
    pub(crate) fn note_present(&self, collection: &Arc<str>, incarnation: u64) {
        self.missing.lock().remove(&(collection.clone(), incarnation));
    }

    /// Drops a sighting, because the holder is decided.
    pub(crate) fn forget(&self, holder: AttemptId, at: &Key) {
        self.sightings.lock().remove(&(holder, Some(at.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::rules::testing::{tid, version};

    #[test]
    fn missing_time_restarts_after_collection_is_found() {
        let (detector, at) = (FailureDetector::default(), Duration::from_secs);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        assert_eq!(detector.note_missing(&one, 1, at(1)), at(0));
        assert_eq!(detector.note_missing(&one, 1, at(5)), at(4));
        assert_eq!(detector.note_missing(&other, 1, at(5)), at(0), "each for itself");
        detector.note_present(&one, 2);
        assert_eq!(detector.note_missing(&one, 1, at(8)), at(7), "another one has its name");
        detector.note_present(&one, 1);
        assert_eq!(detector.note_missing(&one, 1, at(9)), at(0));
    }

    #[test]
    fn holder_is_dead_after_lease_without_heartbeat() {
        let detector = FailureDetector::default();
        let key = Key::new("c", "i");
        let looks = |record: u64, asked: u64, answered: u64| {
            let sign = Some(version(record));
            let (asked, answered) = (Duration::from_millis(asked), Duration::from_millis(answered));
            let at = LookedAt { asked, answered };
            detector.note_sign(tid(1, 0), &key, sign, Duration::from_secs(1), at)
        };
        let sees = |record: u64, at: u64| looks(record, at, at);
        assert!(!sees(1, 0));
        assert!(!sees(1, 999));
        assert!(!sees(2, 1_000), "a heartbeat");
        assert!(!sees(2, 1_999));
        assert!(sees(2, 2_000));
        detector.forget(tid(1, 0), &key);
        assert!(!sees(2, 2_001));
        assert!(!looks(3, 3_000, 4_100), "the heartbeat may have come with the answer");
        assert!(!looks(3, 4_101, 5_200), "the answer may show an older record");
        assert!(looks(3, 5_101, 5_102));
    }

    #[test]
    fn oldest_sighting_survives_overflow() {
        let (detector, lease) = (FailureDetector::default(), Duration::from_secs(1));
        let sees = |id: &str, millis: u64| {
            let at = Duration::from_millis(millis);
            let at = LookedAt { asked: at, answered: at };
            detector.note_sign(tid(1, 0), &Key::new("c", id), None, lease, at)
        };
        assert!(!sees("first", 0));
        for n in 1..=3 * MOST as u64 {
            assert!(!sees(&n.to_string(), n / 100 + 1));
            assert!(detector.sightings.lock().len() <= MOST);
        }
        assert!(sees("first", 1_000));
    }

    #[test]
    fn half_of_equal_sightings_survives_overflow() {
        let (detector, lease) = (FailureDetector::default(), Duration::from_secs(1));
        let sees = |id: usize, millis: u64| {
            let at = Duration::from_millis(millis);
            let at = LookedAt { asked: at, answered: at };
            detector.note_sign(tid(1, 0), &Key::new("c", id.to_string()), None, lease, at)
        };
        for id in 0..=MOST {
            assert!(!sees(id, 0));
        }
        assert_eq!(detector.sightings.lock().len(), MOST / 2 + 1);
        let dead = (0..MOST / 4).filter(|id| sees(*id, 1_000)).count();
        assert!(dead > 0, "all sightings were dropped");
    }
}
