//! Documents that other processes want, too. The processes take turns there: who has its turn takes all that it had together in its
//! last one, so that they meet at the same document; and when that is free, it is for whoever has waited for the most turns of
//! others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::store::Key;

/// Most documents that are remembered.
const DOCUMENTS: NonZeroUsize = NonZeroUsize::new(1_000).expect("it is not zero");

/// A document counts as contested for so long after another process was met there.
const FOR: Duration = Duration::from_secs(1);

/// Most documents that are taken together for no other reason than that they were before.
const TOGETHER: usize = 64;

/// So many of its last commits a process remembers: twice what one turn has.
const COMMITS: usize = 32;

/// Whatever is written by so many of them is written again and again, and not by the one transaction that it was made for.
const AGAIN: usize = 3;

/// And for so long at most, in which each of several processes has had its turn.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Most processes that are told apart.
const PROCESSES: usize = 16;

/// A process, by the bytes that its ids have in common.
pub(crate) type Process = [u8; 2];

/// What is known of a contested document.
#[derive(Clone, Debug, Default)]
struct Known {
    /// When another process was last met there, on the monotonic clock.
    met: Duration,
    /// The other processes, each with when it was last met there.
    others: Vec<(Process, Duration)>,
    /// Who was met last since this process had its turn, if anybody was.
    last: Option<Process>,
    /// How many turns of others were seen since then.
    turns: usize,
}

impl Known {
    fn meets(&mut self, process: Process, now: Duration) {
        self.met = now;
        self.others.retain(|(other, met)| *other != process && now.saturating_sub(*met) < FOR);
        self.others.truncate(PROCESSES - 1);
        self.others.push((process, now));
        if self.last.replace(process) != Some(process) {
            self.turns += 1;
        }
    }

    /// How many of the others have not had their turn since this process had its own.
    fn before(&self, now: Duration) -> usize {
        let here = self.others.iter().filter(|(_, met)| now.saturating_sub(*met) < FOR);
        here.count().saturating_sub(self.turns)
    }
}

/// What this process wrote by one commit, when some of it was contested.
#[derive(Debug)]
struct Commit {
    written: BTreeSet<Key>,
    at: Duration,
}

/// The documents at which other processes were met a moment ago, and those that go with them: whoever waits in order meets nobody
/// at the documents behind the first.
#[derive(Debug)]
pub(crate) struct Contested(Mutex<State>);

#[derive(Debug)]
struct State {
    documents: LruCache<Key, Known>,
    /// When another process was last met anywhere.
    met: Duration,
    /// The last at the end.
    commits: VecDeque<Commit>,
}

impl Default for Contested {
    fn default() -> Self {
        let documents = LruCache::new(DOCUMENTS);
        Self(Mutex::new(State { documents, met: Duration::ZERO, commits: VecDeque::new() }))
    }
}

impl State {
    /// What is known of a document, if another process was met there.
    fn known(&self, key: &Key, now: Duration) -> Option<&Known> {
        self.documents.peek(key).filter(|known| now.saturating_sub(known.met) < FOR)
    }

    /// Whether some of what a commit wrote is contested still.
    fn counts(&self, commit: &Commit, now: Duration) -> bool {
        now.saturating_sub(commit.at) < REMEMBERED
            && commit.written.iter().any(|key| self.known(key, now).is_some())
    }

    fn is_contested(&self, key: &Key, now: Duration) -> bool {
        let has_it = |commit: &&Commit| commit.written.contains(key) && self.counts(commit, now);
        self.known(key, now).is_some() || self.commits.iter().filter(has_it).count() >= AGAIN
    }

    /// Nobody was met anywhere for a while.
    fn is_quiet(&self, now: Duration) -> bool {
        self.documents.is_empty() || now.saturating_sub(self.met) >= FOR
    }
}

impl Contested {
    /// A transaction of another process held the document, or had changed it.
    pub(crate) fn meets(&self, key: &Key, other: Process, now: Duration) {
        let state = &mut *self.0.lock();
        state.met = now;
        let known = state.documents.get_or_insert_mut(key.clone(), Known::default);
        known.meets(other, now);
    }

    /// Whether another process was met a moment ago at one of the documents, or at what goes with it.
    pub(crate) fn is_any<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
        now: Duration,
    ) -> bool {
        let state = self.0.lock();
        !state.is_quiet(now) && keys.into_iter().any(|key| state.is_contested(key, now))
    }

    /// This process had its turn: it committed these documents, of which some were written and are there.
    pub(crate) fn has<'a>(
        &self,
        committed: impl IntoIterator<Item = &'a Key>,
        written: impl IntoIterator<Item = &'a Key>,
        now: Duration,
    ) {
        let state = &mut *self.0.lock();
        if state.is_quiet(now) {
            return;
        }
        for key in committed {
            if let Some(known) = state.documents.peek_mut(key) {
                (known.last, known.turns) = (None, 0);
            }
        }
        let written: BTreeSet<Key> = written.into_iter().cloned().collect();
        // What is alone goes with nothing.
        if written.len() < 2 || !written.iter().any(|key| state.is_contested(key, now)) {
            return;
        }
        if state.commits.len() == COMMITS {
            state.commits.pop_front();
        }
        state.commits.push_back(Commit { written, at: now });
    }

    /// A document is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().documents.pop(key);
        self.leave_behind(key);
    }

    /// A document goes with no other any more. Whose turn it is there is another question.
    pub(crate) fn leave_behind(&self, key: &Key) {
        let state = &mut *self.0.lock();
        state.commits.iter_mut().for_each(|commit| _ = commit.written.remove(key));
    }

    /// How many other processes may go before this one, for they have waited longer, as far as it can see.
    pub(crate) fn before(&self, key: &Key, now: Duration) -> u32 {
        let before = self.0.lock().known(key, now).map_or(0, |known| known.before(now));
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    /// What goes with these documents: what this process wrote together with one of them, again and again.
    pub(crate) fn together_with(&self, keys: &BTreeSet<&Key>, now: Duration) -> BTreeSet<Key> {
        let state = self.0.lock();
        if state.is_quiet(now) {
            return BTreeSet::new();
        }
        let mut times: BTreeMap<&Key, usize> = BTreeMap::new();
        for commit in &state.commits {
            let written = &commit.written;
            if written.iter().any(|key| keys.contains(key)) && state.counts(commit, now) {
                written.iter().for_each(|key| *times.entry(key).or_default() += 1);
            }
        }
        times.retain(|key, times| *times >= AGAIN && !keys.contains(key));
        match times.len() {
            0..=TOGETHER => times.into_keys().cloned().collect(),
            _ => BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn key(id: usize) -> Key {
        Key::new("c", id.to_string())
    }

    fn of(process: u8) -> Process {
        [0x15, process]
    }

    #[test]
    fn a_document_is_contested_for_a_moment() {
        let contested = Contested::default();
        let (one, two) = (key(1), key(2));
        assert!(!contested.is_any([&one, &two], NOW));
        contested.meets(&one, of(1), NOW);
        assert!(contested.is_any([&two, &one], NOW) && !contested.is_any([&two], NOW));
        assert!(!contested.is_any([&one], NOW + FOR));
        contested.forget(&one);
        assert!(!contested.is_any([&one], NOW));
    }

    #[test]
    fn whoever_had_its_turn_lets_all_others_have_theirs() {
        let contested = Contested::default();
        let at = key(1);
        for process in [1, 2, 3] {
            contested.meets(&at, of(process), NOW);
        }
        assert_eq!(contested.before(&at, NOW), 0, "it saw a turn of each");
        contested.has([&at], [&at], NOW);
        assert_eq!(contested.before(&at, NOW), 3);
        // One turn has many transactions.
        for process in [1, 1, 1, 2] {
            contested.meets(&at, of(process), NOW);
        }
        assert_eq!(contested.before(&at, NOW), 1);
        assert_eq!(contested.before(&at, NOW + FOR), 0, "nobody was met for long");
    }

    /// It commits what it writes, and perhaps more.
    fn commit(contested: &Contested, written: &[Key], now: Duration) {
        contested.has(written.iter().chain([&key(99)]), written, now);
    }

    /// What goes with a document.
    fn with(contested: &Contested, one: &Key, now: Duration) -> Vec<Key> {
        contested.together_with(&BTreeSet::from([one]), now).into_iter().collect()
    }

    #[test]
    fn what_is_written_together_goes_together() {
        let contested = Contested::default();
        let all: Vec<Key> = (0..4).map(key).collect();
        (0..AGAIN).for_each(|_| commit(&contested, &all, NOW));
        assert!(with(&contested, &all[0], NOW).is_empty(), "nobody else wants it");
        // Others are met at the first one only.
        contested.meets(&all[0], of(1), NOW);
        commit(&contested, &all, NOW);
        (1..AGAIN).for_each(|_| commit(&contested, &all[..3], NOW));
        assert_eq!(with(&contested, &all[1], NOW), [all[0].clone(), all[2].clone()]);
        assert!(contested.is_any([&all[2]], NOW));
        assert!(!contested.is_any([&all[3]], NOW), "it may never be used again");
        assert!(with(&contested, &all[1], NOW + FOR).is_empty(), "nobody wants them any more");
        contested.forget(&all[2]);
        assert_eq!(with(&contested, &all[1], NOW), [all[0].clone()]);
    }

    #[test]
    fn what_is_not_written_any_more_goes_with_nothing() {
        let contested = Contested::default();
        let all: Vec<Key> = (0..4).map(key).collect();
        all.iter().for_each(|one| contested.meets(one, of(1), NOW));
        for pair in [&all[..2], &all[2..], &all[1..3]] {
            (0..AGAIN).for_each(|_| commit(&contested, pair, NOW));
        }
        assert_eq!(with(&contested, &all[1], NOW), [all[0].clone(), all[2].clone()], "linked");
        for _ in 0..COMMITS / 2 {
            [&all[..2], &all[2..]].iter().for_each(|pair| commit(&contested, pair, NOW));
        }
        assert_eq!(with(&contested, &all[1], NOW), [all[0].clone()]);
        contested.meets(&all[0], of(1), NOW + REMEMBERED);
        assert!(with(&contested, &all[1], NOW + REMEMBERED).is_empty(), "that is long ago");
    }

    #[test]
    fn too_many_do_not_go_together() {
        let contested = Contested::default();
        let many: Vec<Key> = (0..=TOGETHER + 1).map(key).collect();
        contested.meets(&many[1], of(1), NOW);
        (0..AGAIN).for_each(|_| commit(&contested, &many[1..], NOW));
        assert_eq!(with(&contested, &many[1], NOW).len(), TOGETHER);
        (0..AGAIN).for_each(|_| commit(&contested, &many, NOW));
        assert!(with(&contested, &many[1], NOW).is_empty());
    }
}
