//! The document cache: recent reads and commits of this process.
//!
//! The next transaction reads a cached document without a request. The lock or the validation of
//! the transaction verifies the document, as for any read. The cache drops a stale document.
//! Readers without locks do not use the cache.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use txn_protocol::document::{Image, Stored, View};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::rules::validate::Observed;

use crate::engine::read_entry::ReadEntry;
use txn_store::{Key, Source, Version};

/// The maximum number of cached documents.
const DOCUMENTS: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// The maximum number of cached bytes.
const BYTES: usize = 32 << 20;

/// How long a document stays uncached after it was stale twice.
///
/// Both findings lie within this time: another process writes the document.
const STALE_AGAIN: Duration = Duration::from_secs(10);

/// The documents that this process read or committed lately.
#[derive(Debug)]
pub(crate) struct DocumentCache {
    known: Mutex<CacheContent>,
    /// The maximum age of an entry; `None` disables the cache.
    for_at_most: Option<Duration>,
}

#[derive(Debug)]
struct CacheContent {
    entries: LruCache<Key, ReadEntry>,
    bytes: usize,
    stale: LruCache<Key, Stale>,
}

/// A document that was stale in the cache.
#[derive(Clone, Copy, Debug)]
struct Stale {
    /// When the document was last found stale, on the monotonic clock.
    found: Duration,
    /// The document is not cached before this time.
    until: Duration,
}

impl CacheContent {
    fn remember(&mut self, key: &Key, entry: ReadEntry) {
        // Answers may arrive out of order.
        if self.entries.peek(key).is_some_and(|known| known.is_later_than(&entry)) {
            return;
        }
        let bytes = bytes(&entry);
        self.forget(key);
        if bytes > BYTES / 16 {
            return;
        }
        self.bytes += bytes;
        if let Some((_, oldest)) = self.entries.push(key.clone(), entry) {
            self.bytes -= self::bytes(&oldest);
        }
        while self.bytes > BYTES {
            let Some((_, oldest)) = self.entries.pop_lru() else { break };
            self.bytes -= self::bytes(&oldest);
        }
    }

    /// Removes an entry. Returns whether the document was cached.
    fn forget(&mut self, key: &Key) -> bool {
        let entry = self.entries.pop(key);
        self.bytes -= entry.as_ref().map_or(0, bytes);
        entry.is_some()
    }

    fn is_cacheable(&self, key: &Key, now: Duration) -> bool {
        self.stale.peek(key).is_none_or(|stale| stale.until <= now)
    }
}

/// An applied document counts twice: its stored and its parsed content.
fn bytes(entry: &ReadEntry) -> usize {
    let image = entry.observed.image.as_ref().map_or(0, |image| image.as_str().len());
    match entry.view {
        View::Absent => image,
        View::Present { ref source, .. } => image + source.len(),
    }
}

impl DocumentCache {
    pub(crate) fn new(for_at_most: Option<Duration>) -> Self {
        let (entries, stale) = (LruCache::new(DOCUMENTS), LruCache::new(DOCUMENTS));
        let known = CacheContent { entries, bytes: 0, stale };
        Self { known: Mutex::new(known), for_at_most }
    }

    /// Caches the content of a committed, unapplied document.
    ///
    /// The record of `holder` is acknowledged as committed, and the document still has its lock.
    /// Every reader finds this content in the record.
    pub(crate) fn committed(
        &self,
        key: &Key,
        holder: AttemptId,
        commit: CommitVersion,
        image: Image,
        now: Duration,
    ) {
        let observed = Observed {
            version: None,
            commit_version: Some(commit),
            image: Some(image),
            holder: Some(holder),
        };
        let entry = ReadEntry { observed, view: View::Absent, read_at: now };
        if self.for_at_most.is_some() {
            self.known.lock().remember(key, entry);
        }
    }

    /// Caches content that was written into the document, acknowledged at this version.
    pub(crate) fn applied(
        &self,
        key: &Key,
        version: Version,
        source: Source,
        stored: Stored,
        now: Duration,
    ) {
        if self.for_at_most.is_none() {
            return;
        }
        let view = View::Present { version, source, stored };
        let entry = ReadEntry { observed: Observed::of(&view), view, read_at: now };
        self.known.lock().remember(key, entry);
    }

    /// Caches a document that a transaction read from the store.
    ///
    /// Documents with a lock are not cached.
    pub(crate) fn read(&self, key: &Key, entry: &ReadEntry) {
        if self.for_at_most.is_none()
            || entry.observed.image.is_none()
            || entry.observed.version.is_none()
            || entry.observed.holder.is_some()
        {
            return;
        }
        let mut known = self.known.lock();
        if known.is_cacheable(key, entry.read_at) {
            known.remember(key, entry.clone());
        }
    }

    /// As [`Self::read`], at the start of a turn of this process.
    ///
    /// No other process is about to write the document, so earlier stale reads do not count.
    pub(crate) fn read_in_turn(&self, key: &Key, entry: &ReadEntry) {
        self.known.lock().stale.pop(key);
        self.read(key, entry);
    }

    /// Removes the documents that match, and returns them.
    pub(crate) fn forget_all(&self, is_one: impl Fn(&Key) -> bool) -> BTreeSet<Key> {
        let mut known = self.known.lock();
        let keys = known.entries.iter().map(|(key, _)| key).filter(|key| is_one(key));
        let keys: BTreeSet<Key> = keys.cloned().collect();
        keys.iter().for_each(|key| _ = known.forget(key));
        keys
    }

    /// Removes a document that may have changed.
    pub(crate) fn forget(&self, key: &Key) {
        self.known.lock().forget(key);
    }

    /// Removes a document that a transaction found to be stale.
    pub(crate) fn was_stale(&self, key: &Key, now: Duration) {
        let mut known = self.known.lock();
        if !known.forget(key) {
            return;
        }
        let again = known.stale.peek(key).is_some_and(|last| now < last.found + STALE_AGAIN);
        let until = if again { now + STALE_AGAIN } else { now };
        known.stale.put(key.clone(), Stale { found: now, until });
    }

    /// Removes the documents of a collection that was opened again.
    pub(crate) fn forget_collection(&self, collection: &str) {
        let mut known = self.known.lock();
        let keys = known.entries.iter().map(|(key, _)| key);
        let keys: Vec<Key> = keys.filter(|key| *key.collection == *collection).cloned().collect();
        for key in keys {
            known.forget(&key);
        }
    }

    pub(crate) fn get(&self, key: &Key, now: Duration) -> Option<ReadEntry> {
        let longest = self.for_at_most?;
        let mut known = self.known.lock();
        let entry = known.entries.get(key)?;
        if now.saturating_sub(entry.read_at) > longest {
            known.forget(key);
            return None;
        }
        Some(entry.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::rules::testing::{commit, image, tid, version};

    const NOW: Duration = Duration::from_secs(100);

    fn stored(n: u8) -> Stored {
        Stored { commit_version: Some(commit(n)), image: image(n.into()), ..Stored::default() }
    }

    fn applied(cache: &DocumentCache, key: &Key, version: Version, stored: Stored) {
        cache.applied(key, version, stored.encode(), stored, NOW);
    }

    #[test]
    fn commit_is_cached_until_its_maximum_age() {
        let cache = DocumentCache::new(Some(Duration::from_secs(10)));
        let key = Key::new("c", "i");
        cache.committed(&key, tid(1, 0), commit(2), image(2), NOW);
        let committed = cache.get(&key, NOW).expect("remembered").observed;
        assert_eq!((committed.version, committed.holder), (None, Some(tid(1, 0))));
        applied(&cache, &key, version(7), stored(2));
        let applied = cache.get(&key, NOW).expect("remembered").observed;
        assert_eq!((applied.version, applied.holder), (Some(version(7)), None));
        assert_eq!(applied.commit_version, committed.commit_version);
        assert!(cache.get(&key, NOW + Duration::from_secs(11)).is_none());
        assert!(cache.get(&key, NOW).is_none());
        assert_eq!(cache.known.lock().bytes, 0);
    }

    #[test]
    fn forgotten_documents_release_their_bytes() {
        let cache = DocumentCache::new(Some(Duration::from_secs(10)));
        let (one, two, other) = (Key::new("c", "1"), Key::new("c", "2"), Key::new("d", "1"));
        for key in [&one, &two, &other, &one] {
            applied(&cache, key, version(1), stored(1));
        }
        cache.forget(&one);
        cache.forget_collection("c");
        assert!(cache.get(&two, NOW).is_none() && cache.get(&other, NOW).is_some());
        cache.forget(&other);
        assert_eq!(cache.known.lock().bytes, 0);
    }

    #[test]
    fn document_that_is_stale_twice_is_not_cached() {
        let cache = DocumentCache::new(Some(Duration::from_secs(3_600)));
        let key = Key::new("c", "i");
        let view =
            View::Present { version: version(7), source: stored(2).encode(), stored: stored(2) };
        let read =
            |now| ReadEntry { observed: Observed::of(&view), view: view.clone(), read_at: now };
        let is_cached = |now| {
            cache.read(&key, &read(now));
            cache.get(&key, now).is_some()
        };
        assert!(is_cached(NOW));
        cache.was_stale(&key, NOW);
        assert!(is_cached(NOW + STALE_AGAIN), "it was stale once");
        cache.was_stale(&key, NOW + STALE_AGAIN);
        assert!(is_cached(NOW + STALE_AGAIN), "and again, long after");
        let again = NOW + STALE_AGAIN + STALE_AGAIN / 2;
        cache.was_stale(&key, again);
        cache.was_stale(&key, again);
        assert!(!is_cached(again + STALE_AGAIN / 2) && is_cached(again + STALE_AGAIN));
    }

    #[test]
    fn lock_of_another_transaction_is_not_cached() {
        let cache = DocumentCache::new(Some(Duration::from_secs(10)));
        let key = Key::new("c", "i");
        let locked = stored(2).locked_by(Some(tid(1, 0)));
        for view in [
            View::Absent,
            View::Present { version: version(7), source: locked.encode(), stored: locked },
        ] {
            let observed = Observed::of(&view);
            cache.read(&key, &ReadEntry { observed, view, read_at: NOW });
            assert!(cache.get(&key, NOW).is_none());
        }
    }

    #[test]
    fn cached_bytes_are_bounded() {
        let cache = DocumentCache::new(Some(Duration::from_secs(10)));
        let text = format!(r#"{{"a":"{}"}}"#, "x".repeat(500_000));
        let large = Image::parse(&text).expect("valid");
        for id in 0..100_u32 {
            let stored = Stored { image: large.clone(), ..stored(1) };
            applied(&cache, &Key::new("c", id.to_string()), version(1), stored);
        }
        let known = cache.known.lock();
        assert!(known.bytes <= BYTES && known.entries.len() > 20, "{}", known.entries.len());
    }
}
