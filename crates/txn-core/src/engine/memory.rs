//! What this process committed last, so that its next transaction need not ask the store. What is remembered is used as any read
//! is: it is verified by the lock or by the validation, and what turns out to be stale is forgotten. Readers without locks never
//! use it.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use txn_protocol::document::{Image, Stored, View};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::rules::validate::Observed;

use super::observe::ReadEntry;
use crate::store::{Key, Source, Version};

/// Most documents that are remembered.
const DOCUMENTS: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// Most bytes of their contents.
const BYTES: usize = 32 << 20;

/// The contents of documents, as this process committed them.
#[derive(Debug)]
pub(crate) struct Memory {
    known: Mutex<Known>,
    /// Nothing is remembered longer than this; none: nothing is remembered at all.
    for_at_most: Option<Duration>,
}

#[derive(Debug)]
struct Known {
    entries: LruCache<Key, ReadEntry>,
    bytes: usize,
}

impl Known {
    fn remember(&mut self, key: &Key, entry: ReadEntry) {
        // News may be late.
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

    fn forget(&mut self, key: &Key) {
        if let Some(entry) = self.entries.pop(key) {
            self.bytes -= bytes(&entry);
        }
    }
}

/// A document that was applied holds its content twice: as it is stored, and as it is read.
fn bytes(entry: &ReadEntry) -> usize {
    let image = entry.observed.image.as_ref().map_or(0, |image| image.as_str().len());
    match entry.view {
        View::Absent => image,
        View::Present { ref source, .. } => image + source.len(),
    }
}

impl Memory {
    pub(crate) fn new(for_at_most: Option<Duration>) -> Self {
        let known = Known { entries: LruCache::new(DOCUMENTS), bytes: 0 };
        Self { known: Mutex::new(known), for_at_most }
    }

    /// The record of `holder` is acknowledged as committed, and the document still carries its lock: what every reader finds
    /// in that record.
    pub(crate) fn committed(
        &self,
        key: &Key,
        holder: AttemptId,
        commit: CommitVersion,
        image: Image,
        now: Duration,
    ) {
        self.locked(key, holder, Some(commit), image, now);
    }

    /// The document stands under the lock of `holder`, acknowledged over this content, which its commit leaves as it is.
    pub(crate) fn locked(
        &self,
        key: &Key,
        holder: AttemptId,
        tid: Option<CommitVersion>,
        image: Image,
        now: Duration,
    ) {
        let observed = Observed { version: None, tid, image: Some(image), holder: Some(holder) };
        let entry = ReadEntry { observed, view: View::Absent, read_at: now };
        if self.for_at_most.is_none() {
            return;
        }
        self.known.lock().remember(key, entry);
    }

    /// The content was written into the document, acknowledged at this version.
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

    /// It is not what was remembered, or may not be.
    pub(crate) fn forget(&self, key: &Key) {
        self.known.lock().forget(key);
    }

    /// Forgets the documents of a collection, which was opened again.
    pub(crate) fn forget_collection(&self, collection: &str) {
        let mut known = self.known.lock();
        let keys = known.entries.iter().map(|(key, _)| key);
        let keys: Vec<Key> = keys.filter(|key| *key.collection == *collection).cloned().collect();
        for key in keys {
            known.forget(&key);
        }
    }

    /// For how long it has been committed, as far as this process knows, and not applied.
    pub(crate) fn unapplied_for(&self, key: &Key, now: Duration) -> Option<Duration> {
        let known = self.known.lock();
        let entry = known.entries.peek(key).filter(|entry| entry.observed.holder.is_some())?;
        Some(now.saturating_sub(entry.read_at))
    }

    pub(crate) fn recall(&self, key: &Key, now: Duration) -> Option<ReadEntry> {
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
        Stored { tid: Some(commit(n)), image: image(n.into()), ..Stored::default() }
    }

    fn applied(memory: &Memory, key: &Key, version: Version, stored: Stored) {
        memory.applied(key, version, stored.encode(), stored, NOW);
    }

    #[test]
    fn the_last_commit_is_recalled_until_it_is_old() {
        let memory = Memory::new(Some(Duration::from_secs(10)));
        let key = Key::new("c", "i");
        memory.committed(&key, tid(1, 0), commit(2), image(2), NOW);
        let committed = memory.recall(&key, NOW).expect("remembered").observed;
        assert_eq!((committed.version, committed.holder), (None, Some(tid(1, 0))));
        applied(&memory, &key, version(7), stored(2));
        let applied = memory.recall(&key, NOW).expect("remembered").observed;
        assert_eq!((applied.version, applied.holder), (Some(version(7)), None));
        assert_eq!(applied.tid, committed.tid);
        assert!(memory.recall(&key, NOW + Duration::from_secs(11)).is_none());
        assert!(memory.recall(&key, NOW).is_none());
        assert_eq!(memory.known.lock().bytes, 0);
    }

    #[test]
    fn what_is_forgotten_leaves_no_bytes_behind() {
        let memory = Memory::new(Some(Duration::from_secs(10)));
        let (one, two, other) = (Key::new("c", "1"), Key::new("c", "2"), Key::new("d", "1"));
        for key in [&one, &two, &other, &one] {
            applied(&memory, key, version(1), stored(1));
        }
        memory.forget(&one);
        memory.forget_collection("c");
        assert!(memory.recall(&two, NOW).is_none() && memory.recall(&other, NOW).is_some());
        memory.forget(&other);
        assert_eq!(memory.known.lock().bytes, 0);
    }

    #[test]
    fn the_bytes_are_bounded() {
        let memory = Memory::new(Some(Duration::from_secs(10)));
        let text = format!(r#"{{"a":"{}"}}"#, "x".repeat(500_000));
        let large = Image::parse(&text).expect("valid");
        for id in 0..100_u32 {
            let stored = Stored { image: large.clone(), ..stored(1) };
            applied(&memory, &Key::new("c", id.to_string()), version(1), stored);
        }
        let known = memory.known.lock();
        assert!(known.bytes <= BYTES && known.entries.len() > 20, "{}", known.entries.len());
    }
}
