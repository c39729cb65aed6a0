//! Reads without locks that wait for undecided holders.

use std::collections::BTreeMap;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::holders::foreign_lock::ForeignLock;
use crate::engine::read_entry::ReadEntry;
use crate::engine::reads::Reads;
use crate::engine::recovery::roll_forward::Resolution;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_protocol::ids::AttemptId;
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::Requester;
use txn_store::Key;

impl Reads {
    pub(crate) async fn read_committed(
        &self,
        keys: &[Key],
        deadline: &Deadline,
    ) -> Result<Vec<ReadEntry>, AttemptError> {
        let views = self.store.read_documents(keys, ReadPreference::AnyCopy, deadline).await?;
        self.observe(keys, views, ReadPreference::AnyCopy, deadline).await
    }

    /// Reads each document as a read-only transaction of that document would.
    ///
    /// An undecided holder may have validated already. Its position in the serial order is then
    /// before commits that were acknowledged since. So the read waits for the holder.
    ///
    /// `enclosing`: the attempts in whose closures the caller runs. These attempts wait for the
    /// caller.
    pub(crate) async fn read_verified(
        &self,
        keys: &[Key],
        enclosing: &[AttemptId],
        deadline: &Deadline,
    ) -> Result<Vec<ReadEntry>, AttemptError> {
        self.read_decided(keys, |_| true, enclosing, deadline).await
    }

    /// Reads documents from their primaries.
    ///
    /// The read waits for each undecided holder for which `matters` is true.
    pub(super) async fn read_decided(
        &self,
        keys: &[Key],
        matters: impl Fn(AttemptId) -> bool + Sync,
        enclosing: &[AttemptId],
        deadline: &Deadline,
    ) -> Result<Vec<ReadEntry>, AttemptError> {
        let mut entries: Vec<Option<ReadEntry>> = vec![None; keys.len()];
        let mut backoff = self.context.backoff();
        loop {
            let open: Vec<usize> = (0..keys.len()).filter(|i| entries[*i].is_none()).collect();
            if open.is_empty() {
                return Ok(entries.into_iter().flatten().collect());
            }
            let asked: Vec<Key> = open.iter().map(|i| keys[*i].clone()).collect();
            let views =
                self.store.read_documents(&asked, ReadPreference::Primary, deadline).await?;
            let looks = self.observe(&asked, views, ReadPreference::Primary, deadline).await?;
            let mut locks = Vec::new();
            let mut held = BTreeMap::new();
            for ((index, key), entry) in open.into_iter().zip(asked).zip(looks) {
                // An entry from a committed record is decided.
                let undecided = entry.observed.version.and(entry.observed.holder);
                if undecided.is_some_and(&matters)
                    && self.context.rules.decides(Rule::ReadOnlyWaits)
                {
                    locks.push(ForeignLock { key: key.clone(), view: entry.view.clone() });
                    held.insert(key, (index, entry));
                } else {
                    entries[index] = Some(entry);
                }
            }
            let resolved = self
                .recovery
                .resolve_locks(Requester::NonPreempting, locks.clone(), deadline)
                .await?;
            let is = |lock: &&ForeignLock, what| resolved.get(&lock.key) == Some(&what);
            let void: Vec<ForeignLock> =
                locks.iter().filter(|lock| is(lock, Resolution::Void)).cloned().collect();
            // A blocked index keeps its locks, and its documents can be read.
            for key in self.unlocker.unlock_current(&void).await? {
                if let Some((index, entry)) = held.remove(&key) {
                    entries[index] = Some(entry);
                }
            }
            locks.retain(|lock| held.contains_key(&lock.key));
            let busy = locks.iter().find(|lock| is(lock, Resolution::Blocked));
            if let Some(reason) = self.wait_reason(&locks, busy, enclosing)? {
                self.context.pause(deadline, &mut backoff, reason).await?;
            }
        }
    }

    /// Returns why the read waits, if locks are left.
    ///
    /// `busy` is the lock of a holder that may continue.
    fn wait_reason(
        &self,
        locks: &[ForeignLock],
        busy: Option<&ForeignLock>,
        enclosing: &[AttemptId],
    ) -> Result<Option<WaitReason>, Error> {
        if let Some(lock) = busy
            && lock.view.holder().is_some_and(|holder| enclosing.contains(&holder))
        {
            let message = "the transaction in whose closure it is read holds it: read it there";
            return Err(Error::invalid(message).at(&lock.key));
        }
        Ok(match busy.and_then(|lock| Some((lock.key.clone(), lock.view.holder()?))) {
            Some((key, holder)) => {
                let label = self.recovery.label_of(holder);
                Some(WaitReason::Others { key, holder, label })
            }
            None => locks.first().map(|lock| WaitReason::Changing(lock.key.clone())),
        })
    }
}
