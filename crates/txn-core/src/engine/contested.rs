//! Documents that other processes want, too. The processes take turns there: who has its turn takes all that it had together in its
//! last one, so that they meet at the same document; and when that is free, it is for whoever has waited for the most turns of
//! others.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::store::Key;
use txn_protocol::tid::Tid;

/// Most documents that are remembered.
const DOCUMENTS: NonZeroUsize = NonZeroUsize::new(1_000).expect("it is not zero");

/// A document counts as contested for so long after another process was met there.
const FOR: Duration = Duration::from_secs(1);

/// Most documents that are taken together for no other reason than that they were before.
const TOGETHER: usize = 64;

/// Most processes that are told apart.
const PROCESSES: usize = 16;

/// A process, by the node of its tids.
type Node = [u8; 6];

/// What is known of a contested document.
#[derive(Clone, Debug, Default)]
struct Known {
    /// When another process was last met there, on the monotonic clock.
    met: Duration,
    /// The other processes, each with when it was last met there.
    others: Vec<(Node, Duration)>,
    /// Who was met last since this process had its turn, if anybody was.
    last: Option<Node>,
    /// How many turns of others were seen since then.
    turns: usize,
    /// What this process had together with it.
    together: Arc<BTreeSet<Key>>,
}

impl Known {
    fn meets(&mut self, node: Node, now: Duration) {
        self.met = now;
        self.others.retain(|(other, met)| *other != node && now.saturating_sub(*met) < FOR);
        self.others.truncate(PROCESSES - 1);
        self.others.push((node, now));
        if self.last.replace(node) != Some(node) {
            self.turns += 1;
        }
    }

    /// How many of the others have not had their turn since this process had its own.
    fn before(&self, now: Duration) -> usize {
        let here = self.others.iter().filter(|(_, met)| now.saturating_sub(*met) < FOR);
        here.count().saturating_sub(self.turns)
    }
}

/// The documents at which other processes were met a moment ago.
#[derive(Debug)]
pub(crate) struct Contested(Mutex<LruCache<Key, Known>>);

impl Default for Contested {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(DOCUMENTS)))
    }
}

impl Contested {
    /// A transaction of another process held the document, or had changed it.
    pub(crate) fn meets(&self, key: &Key, other: Tid, now: Duration) {
        let mut contested = self.0.lock();
        contested.get_or_insert_mut(key.clone(), Known::default).meets(other.node(), now);
    }

    /// Whether another process was met at one of the documents a moment ago.
    pub(crate) fn is_any<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
        now: Duration,
    ) -> bool {
        let contested = self.0.lock();
        !contested.is_empty() && keys.into_iter().any(|key| known(&contested, key, now).is_some())
    }

    /// This process has documents together: it is its turn.
    pub(crate) fn has(&self, keys: &[Key], now: Duration) {
        let mut contested = self.0.lock();
        if contested.is_empty() {
            return;
        }
        let met = keys.iter().filter_map(|key| Some(known(&contested, key, now)?.met)).max();
        let Some(met) = met else { return };
        let together: Arc<BTreeSet<Key>> = match keys.len() {
            0..=TOGETHER => Arc::new(keys.iter().cloned().collect()),
            _ => Arc::default(),
        };
        for key in keys {
            let known = contested.get_or_insert_mut(key.clone(), Known::default);
            (known.met, known.together) = (met, together.clone());
            (known.last, known.turns) = (None, 0);
        }
    }

    /// A document is not to be had: it is not taken together with others any more.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().pop(key);
    }

    /// How many other processes may go before this one, for they have waited longer, as far as it can see.
    pub(crate) fn before(&self, key: &Key, now: Duration) -> u32 {
        let contested = self.0.lock();
        let before = known(&contested, key, now).map_or(0, |known| known.before(now));
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    /// What this process had together with documents, without these, as far as it is contested.
    pub(crate) fn together_with<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key> + Clone,
        now: Duration,
    ) -> BTreeSet<Key> {
        let contested = self.0.lock();
        let mut together = BTreeSet::new();
        for known in keys.clone().into_iter().filter_map(|key| known(&contested, key, now)) {
            if !known.together.is_subset(&together) {
                together.extend(known.together.iter().cloned());
            }
        }
        for key in keys {
            together.remove(key);
        }
        together.retain(|key| known(&contested, key, now).is_some());
        if together.len() > TOGETHER {
            together.clear();
        }
        together
    }
}

/// What is known of a document, if it is contested.
fn known<'a>(contested: &'a LruCache<Key, Known>, key: &Key, now: Duration) -> Option<&'a Known> {
    contested.peek(key).filter(|known| now.saturating_sub(known.met) < FOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::tid::Tid;

    const NOW: Duration = Duration::from_secs(100);

    fn key(id: usize) -> Key {
        Key::new("c", id.to_string())
    }

    /// A transaction of another process.
    fn of(process: u8) -> Tid {
        format!("5d9717c5-e704-11f1-8000-15ee4fa6ea{process:02x}").parse().expect("a tid")
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
        contested.has(std::slice::from_ref(&at), NOW);
        assert_eq!(contested.before(&at, NOW), 3);
        // One turn has many transactions.
        for process in [1, 1, 1, 2] {
            contested.meets(&at, of(process), NOW);
        }
        assert_eq!(contested.before(&at, NOW), 1);
        assert_eq!(contested.before(&at, NOW + FOR), 0, "nobody was met for long");
    }

    #[test]
    fn what_was_had_together_is_had_together_again() {
        let contested = Contested::default();
        let all: Vec<Key> = (0..4).map(key).collect();
        contested.has(&all, NOW);
        assert!(contested.together_with([&all[0]], NOW).is_empty(), "nobody else wants it");
        contested.meets(&all[0], of(1), NOW);
        contested.has(&all[..3], NOW);
        let together: Vec<Key> = contested.together_with([&all[1]], NOW).into_iter().collect();
        assert_eq!(together, [all[0].clone(), all[2].clone()]);
        let many: Vec<Key> = (0..=TOGETHER).map(key).collect();
        contested.has(&many, NOW);
        assert!(contested.together_with([&all[1]], NOW).is_empty(), "those are too many");
    }
}
