//! Documents that other processes want, too.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::store::Key;

/// Most documents that are remembered.
const DOCUMENTS: NonZeroUsize = NonZeroUsize::new(1_000).expect("it is not zero");

/// A document counts as contested for so long after another process was met there.
const FOR: Duration = Duration::from_secs(1);

/// When another process was last met at a document, on the monotonic clock.
#[derive(Debug)]
pub(crate) struct Contested(Mutex<LruCache<Key, Duration>>);

impl Default for Contested {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(DOCUMENTS)))
    }
}

impl Contested {
    /// Another process held the document, or had changed it.
    pub(crate) fn meets_others(&self, key: &Key, now: Duration) {
        self.0.lock().put(key.clone(), now);
    }

    /// Whether another process was met at one of the documents a moment ago.
    pub(crate) fn is_any<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
        now: Duration,
    ) -> bool {
        let met = self.0.lock();
        let just_met = |key| met.peek(key).is_some_and(|at| now.saturating_sub(*at) < FOR);
        !met.is_empty() && keys.into_iter().any(just_met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_contested_for_a_moment() {
        let contested = Contested::default();
        let (one, two) = (Key::new("c", "1"), Key::new("c", "2"));
        let now = Duration::from_secs(100);
        assert!(!contested.is_any([&one, &two], now));
        contested.meets_others(&one, now);
        assert!(contested.is_any([&two, &one], now) && !contested.is_any([&two], now));
        assert!(!contested.is_any([&one], now + FOR));
    }
}
