//! Reads of a closure: optimistic, or with a lock at each read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::Attempt;
use super::locking::lock::acquire_for_reading;
use crate::engine::attempt_error::AttemptError;
use crate::engine::store::store_access::ReadPreference;
use crate::error::Error;
use txn_protocol::document::Image;
use txn_protocol::ids::CommitVersion;
use txn_store::Key;

impl Attempt {
    /// Returns the contents of documents, one per key, in order.
    ///
    /// The content is committed, or written by the transaction itself.
    pub(crate) async fn read(
        self: &Arc<Self>,
        keys: &[Key],
    ) -> Result<Vec<Option<Image>>, AttemptError> {
        self.engine.reads.check_readable(keys)?;
        let missing: Vec<Key> = {
            let working = self.working.lock();
            let missing: BTreeSet<&Key> = keys.iter().filter(|key| !working.uses(key)).collect();
            missing.into_iter().cloned().collect()
        };
        if !missing.is_empty() {
            self.check_count(&self.working.lock(), missing.len())?;
            self.fetch(missing).await?;
        }
        let working = self.working.lock();
        let content = |key: &Key| match working.writes.get(key) {
            Some(mutation) => mutation.image().cloned(),
            None => working.reads.get(key).and_then(|read| read.observed.image.clone()),
        };
        Ok(keys.iter().map(content).collect())
    }

    /// Returns the version of the commit that wrote the read content.
    pub(crate) fn version(&self, key: &Key) -> Result<Option<CommitVersion>, Error> {
        let working = &mut *self.working.lock();
        let unread = || Error::invalid("it was written without being read: ask before").at(key);
        let observed = &working.reads.get(key).ok_or_else(unread)?.observed;
        if observed.image.is_none() {
            return Ok(None);
        }
        if observed.version.is_none() && observed.commit_version.is_none() {
            // An earlier member of the group wrote the content, and has no commit version yet.
            cov_mark::hit!(version_of_uncommitted_content);
            self.is_solo.store(true, Ordering::Release);
        }
        working.known_versions.insert(key.clone());
        Ok(observed.commit_version)
    }

    /// Notes the documents that are known without a request. Returns the other keys.
    fn take_known(&self, keys: Vec<Key>) -> Vec<Key> {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for key in keys {
            match self.known(&key) {
                Some(entry) => known.push((key, entry)),
                None => unknown.push(key),
            }
        }
        let mut working = self.working.lock();
        for (key, entry) in known {
            working.note_read(key, entry);
        }
        unknown
    }

    pub(super) async fn fetch(self: &Arc<Self>, keys: Vec<Key>) -> Result<(), AttemptError> {
        if self.pessimistic {
            // A read whose caller no longer waits must delay neither the next read nor the commit.
            let given_up = CancellationToken::new();
            let _guard = given_up.clone().drop_guard();
            let this = self.clone();
            let acquire = async move { acquire_for_reading(&this, keys, &given_up).await };
            return self.spawn_tracked(acquire).await;
        }
        let keys = self.take_known(keys);
        if keys.is_empty() {
            return Ok(());
        }
        let read = async {
            let views = self
                .engine
                .store
                .read_documents(&keys, ReadPreference::AnyCopy, &self.deadline)
                .await?;
            self.engine.reads.observe(&keys, views, ReadPreference::AnyCopy, &self.deadline).await
        };
        let entries = self.by_deadline(read).await?;
        let mut working = self.working.lock();
        for (key, entry) in keys.into_iter().zip(entries) {
            if self.uses_cache {
                self.engine.hot.cache.read(&key, &entry);
            }
            working.note_read(key, entry);
        }
        Ok(())
    }
}
