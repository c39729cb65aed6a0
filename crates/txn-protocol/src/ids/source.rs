//! The source of all ids of a process.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;

use super::attempt_id::AttemptId;
use super::commit_version::CommitVersion;
use super::time_uuid::{MAX_SEQUENCE, Parts, ticks_of, unix_time_of};
use crate::clock::Entropy;

/// Hands out the ids of one process; no timestamp twice.
///
/// The source counts starts of transactions and versions of commits separately. A commit moves past
/// the versions that it read. The age of the next transaction must not move with the commit,
/// because a younger transaction is wounded first.
///
/// A clock that was ahead for a moment leaves no trace. If the last timestamp is further ahead of
/// `now` than the drift, the source continues under a new node, at `now`.
#[derive(Debug)]
pub struct IdSource(Mutex<State>);

#[derive(Debug)]
struct State {
    node: [u8; 6],
    last_start: u64,
    last_commit: u64,
    /// The versions that were handed out last.
    issued: BTreeSet<CommitVersion>,
}

/// The maximum number of versions that the source remembers.
const ISSUED: usize = 10_000;

/// The error of a read version too far in the future.
///
/// The distance exceeds the difference that is allowed between clocks.
#[derive(Debug, PartialEq, Eq)]
pub struct TooFarAhead {
    /// The distance to the present time.
    pub by: Duration,
}

impl IdSource {
    /// A source with a node of its own.
    #[must_use]
    pub fn new(entropy: &dyn Entropy) -> Self {
        let node = node_of(entropy.next_u64());
        let (last_start, last_commit, issued) = (0, 0, BTreeSet::new());
        Self(Mutex::new(State { node, last_start, last_commit, issued }))
    }

    /// The present node: the random part of the versions of this process.
    #[must_use]
    pub fn node(&self) -> [u8; 6] {
        self.0.lock().node
    }

    /// Whether a version carries this node. A hint, because copies of a process share a node.
    #[must_use]
    pub fn shares_node(&self, version: CommitVersion) -> bool {
        version.node() == self.0.lock().node
    }

    /// Whether this source handed the version out. The oldest versions are forgotten.
    #[must_use]
    pub fn has_issued(&self, version: CommitVersion) -> bool {
        self.0.lock().issued.contains(&version)
    }

    /// Continues under a new node.
    ///
    /// If this machine was cloned or restored, another process may commit under the present node.
    pub fn renew_node(&self, entropy: &dyn Entropy) {
        self.0.lock().node = node_of(entropy.word());
    }

    /// The first attempt of a transaction that starts `now`. `now` is the time since the Unix
    /// epoch.
    pub fn start(&self, now: Duration, drift: Duration, entropy: &dyn Entropy) -> AttemptId {
        let mut state = self.0.lock();
        let ticks = ticks_of(now).max(state.last_start + 1);
        if ticks > ticks_of(now.saturating_add(drift)) {
            state.begin_anew(ticks_of(now), entropy);
        } else {
            state.last_start = ticks;
        }
        // A copy of this process, as of a cloned machine, continues from the same state.
        let [a, b, ..] = state.node;
        let [c, d, e, f, ..] = entropy.word().to_be_bytes();
        AttemptId::first(state.last_start, [a, b], u32::from_be_bytes([c, d, e, f]))
    }

    /// The version of a commit.
    ///
    /// The version is `now`, not before the start of its transaction (`began`), and later than each
    /// version that was read or is overwritten (`after`).
    ///
    /// # Errors
    /// [`TooFarAhead`] if `began` or `after` is later than `now` and the drift. No version is
    /// handed out then.
    pub fn commit(
        &self,
        now: Duration,
        began: Option<AttemptId>,
        after: Option<CommitVersion>,
        drift: Duration,
        entropy: &dyn Entropy,
    ) -> Result<CommitVersion, TooFarAhead> {
        let after = after.map_or(0, |version| version.ticks() + 1);
        let floor = began.map_or(0, AttemptId::ticks).max(after);
        let bound = ticks_of(now.saturating_add(drift));
        if floor > bound {
            let ahead = unix_time_of(floor).saturating_sub(now);
            return Err(TooFarAhead { by: ahead });
        }
        let mut state = self.0.lock();
        let ticks = ticks_of(now).max(floor);
        if state.last_commit >= bound {
            state.begin_anew(ticks_of(now), entropy);
            state.last_commit = ticks;
        } else {
            state.last_commit = ticks.max(state.last_commit + 1);
        }
        // Two copies of one process would have to agree on these bits, too.
        let sequence = u16::try_from(entropy.word() & u64::from(MAX_SEQUENCE)).unwrap_or(0);
        let parts = Parts { ticks: state.last_commit, sequence, node: state.node };
        let version = CommitVersion::new(parts);
        state.issued.insert(version);
        if state.issued.len() > ISSUED {
            state.issued.pop_first();
        }
        Ok(version)
    }
}

impl State {
    fn begin_anew(&mut self, ticks: u64, entropy: &dyn Entropy) {
        self.node = node_of(entropy.word());
        (self.last_start, self.last_commit) = (ticks, ticks);
    }
}

fn node_of(random: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = random.to_be_bytes();
    // The multicast bit says that the node is random, not a hardware address (RFC 9562, 6.10).
    [a | 1, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Counts, so that each node differs.
    #[derive(Debug, Default)]
    struct Counter(AtomicU64);

    impl Entropy for Counter {
        fn next_u64(&self) -> u64 {
            self.0.fetch_add(1 << 50, Ordering::Relaxed)
        }

        fn word(&self) -> u64 {
            self.next_u64()
        }
    }

    const NOON: Duration = Duration::from_secs(1_772_280_000);
    const DRIFT: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn source() -> (IdSource, Counter) {
        let entropy = Counter::default();
        (IdSource::new(&entropy), entropy)
    }

    #[test]
    fn attempts_keep_their_age_and_differ_in_id() {
        let (source, entropy) = source();
        let [first, second] = [NOON, NOON].map(|now| source.start(now, DRIFT, &entropy));
        assert!(first < second);
        let retry = first.with_attempt(3);
        assert_eq!((retry.age(), retry.attempt()), (first.age(), 3));
        assert!(retry > first && retry < second);
        assert_eq!(first.to_string().parse(), Ok(first));
        assert_eq!(first.process().0[0] & 1, 1, "multicast bit");
        assert_eq!(first.with_attempt(MAX_SEQUENCE).attempt(), MAX_SEQUENCE);
        assert!("not a tid".parse::<AttemptId>().is_err());
        let version_4 = "7d444840-9dc0-41d1-b245-5ffdce74fad2";
        assert!(version_4.parse::<AttemptId>().is_err());
    }

    #[test]
    fn commit_version_exceeds_the_overwritten_version() {
        let (source, entropy) = source();
        let (other, _) = (self::source().0, ());
        let ahead = other.commit(NOON + DRIFT / 2, None, None, DRIFT, &entropy).expect("in time");
        let commit =
            source.commit(NOON, None, Some(ahead), DRIFT, &entropy).expect("within the drift");
        assert!(commit > ahead);
        assert_eq!(commit.compact().to_string().parse(), Ok(commit));
        let next = source.commit(NOON, None, None, DRIFT, &entropy).expect("in time");
        assert!(next > commit, "versions of one process grow");
        let far = other.commit(NOON + 10 * DRIFT, None, None, DRIFT, &entropy).expect("in time");
        let refused = source.commit(NOON, None, Some(far), DRIFT, &entropy).expect_err("too far");
        assert!(refused.by >= 10 * DRIFT);
    }

    #[test]
    fn commit_version_is_not_before_its_start() {
        let (source, entropy) = source();
        let began = source.start(NOON + DRIFT / 2, DRIFT, &entropy);
        let commit = source.commit(NOON, Some(began), None, DRIFT, &entropy).expect("in time");
        assert!(commit.unix_time() >= began.unix_time());
    }

    #[test]
    fn read_version_does_not_change_the_next_age() {
        let (source, entropy) = source();
        let ahead = source.commit(NOON + DRIFT / 2, None, None, DRIFT, &entropy).expect("in time");
        let commit =
            source.commit(NOON, None, Some(ahead), DRIFT, &entropy).expect("within the drift");
        let next = source.start(NOON, DRIFT, &entropy);
        assert!(next.unix_time() < commit.unix_time());
        assert_eq!(next.unix_time(), NOON);
    }

    #[test]
    fn ids_recover_from_a_clock_that_was_ahead() {
        let (source, entropy) = source();
        let before = source.start(NOON, DRIFT, &entropy);
        source.start(NOON + HOUR, DRIFT, &entropy);
        source.commit(NOON + HOUR, None, None, DRIFT, &entropy).expect("by that clock in time");
        let after = source.start(NOON, DRIFT, &entropy);
        assert_eq!(after.unix_time(), NOON);
        assert_ne!(after.process(), before.process(), "or versions would be handed out twice");
        let commit = source.commit(NOON, None, None, DRIFT, &entropy).expect("in time");
        assert!(commit.unix_time() < NOON + DRIFT);
        assert!(source.has_issued(commit) && source.shares_node(commit));
    }

    #[test]
    fn copies_of_a_process_share_no_ids() {
        let (source, entropy) = source();
        let before = source.commit(NOON, None, None, DRIFT, &entropy).expect("in time");
        let State { node, last_start, last_commit, issued } = source.0.into_inner();
        let copies = [(); 2].map(|()| {
            let issued = issued.clone();
            IdSource(Mutex::new(State { node, last_start, last_commit, issued }))
        });
        let [one, two] = copies.each_ref().map(|copy| copy.start(NOON, DRIFT, &entropy));
        assert_eq!((one.unix_time(), one.process()), (two.unix_time(), two.process()));
        assert_ne!(one, two);
        let [one, two] = copies;
        let version = one.commit(NOON, None, None, DRIFT, &entropy).expect("in time");
        assert!(one.has_issued(version) && two.shares_node(version) && !two.has_issued(version));
        assert!(one.has_issued(before) && two.has_issued(before));
    }

    #[test]
    fn versions_never_leave_the_drift() {
        let (source, entropy) = source();
        let edge = source.commit(NOON + DRIFT, None, None, DRIFT, &entropy).expect("in time");
        let next = source.commit(NOON, None, None, DRIFT, &entropy).expect("in time");
        assert!(next.unix_time() <= NOON + DRIFT && next.node() != edge.node());
    }
}
