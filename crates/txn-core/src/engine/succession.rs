//! Documents that a committed attempt of this process leaves to the group that comes next, which writes the commit's content and
//! its own lock at once. Others see documents that were applied and locked again.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Engine;
use crate::store::Key;
use txn_protocol::document::{Stored, View};
use txn_protocol::record::Record;
use txn_protocol::rules::lock::{LockingOver, locking_over};

/// A document passes so often from group to group at most before it is applied: others have a moment then to lock it.
pub(crate) const LONGEST_CHAIN: u8 = 16;

/// A document whose commit the next lock may write.
#[derive(Debug)]
pub(crate) struct Succession {
    /// What stands there: the version of the lock, and the content that the commit leaves behind.
    pub(crate) view: View,
    /// How many groups it came through without being applied in between.
    pub(crate) chain: u8,
    locked: oneshot::Sender<()>,
}

impl Succession {
    /// The next lock stands, and the content under it: both were acknowledged.
    pub(crate) fn locked(self) {
        // Whoever waits no longer finds out by a look.
        self.locked.send(()).ok();
    }
}

/// Says that the next lock was acknowledged; fails once it is known that it will not be by this way.
pub(crate) type LockedOver = oneshot::Receiver<()>;

/// The documents that are left to whoever comes next.
#[derive(Debug, Default)]
pub(crate) struct Successions(Mutex<BTreeMap<Key, Succession>>);

impl Successions {
    pub(crate) fn leave(&self, key: &Key, view: View, chain: u8) -> LockedOver {
        let (locked, locked_over) = oneshot::channel();
        self.0.lock().insert(key.clone(), Succession { view, chain, locked });
        locked_over
    }

    /// Whoever claims a document sends its lock now, or drops it.
    pub(crate) fn claim(&self, key: &Key) -> Option<Succession> {
        self.0.lock().remove(key)
    }

    /// Nobody comes to lock these any more: whoever left them applies them.
    pub(crate) fn withdraw<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let mut left = self.0.lock();
        keys.into_iter().for_each(|key| drop(left.remove(key)));
    }
}

impl Engine {
    /// What the next lock is written over, if it may be written over the lock of this participant: the record was acknowledged as
    /// committed. `now`: the participant as its owner locked it.
    pub(crate) fn under_next_lock(
        &self,
        record: &Record,
        index: usize,
        now: &View,
    ) -> Option<View> {
        let View::Present { source, stored, .. } = now else { return None };
        let participant = record.participants.get(index)?;
        let (version, stored) = match locking_over(&self.rules, record.tid, true, participant, now)?
        {
            LockingOver::Content(version) => {
                let image = record.images.get(index)?.as_ref()?;
                (version, self.committed(stored, record.commit_version?, image))
            }
            LockingOver::Placeholder(version) => {
                (version, Stored { absent: true, ..Stored::default() })
            }
            LockingOver::Keep(version) => (version, stored.locked_by(None)),
        };
        Some(View::Present { version, source: source.clone(), stored })
    }
}
