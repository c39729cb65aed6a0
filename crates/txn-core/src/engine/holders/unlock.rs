//! Removes void locks from documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::apply::step_write::step_write;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::holders::foreign_lock::ForeignLock;
use crate::engine::store::store_access::{Look, ReadPreference, StoreAccess};
use crate::error::Error;
use crate::event::Event;
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::apply::{Applying, unlocking};
use txn_store::{Key, Outcome, Write};

/// Tries to remove a void lock that another process keeps touching.
///
/// A slow process must not fail each time.
const UNLOCK_TRIES: u32 = 3;

/// The removal of void locks.
pub(crate) struct Unlocker {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
}

impl Unlocker {
    pub(in crate::engine) fn new(base: &Base) -> Self {
        let Base { context, store, .. } = base.clone();
        Self { context, store }
    }

    /// Removes void locks. Returns for each document whether the removal was acknowledged.
    pub(crate) async fn unlock_all(
        &self,
        locks: &[ForeignLock],
    ) -> BTreeMap<Key, Result<bool, Error>> {
        let mut unlocked = BTreeMap::new();
        let mut moved = self.unlock_once(locks, &mut unlocked).await;
        for _ in 1..UNLOCK_TRIES {
            if moved.is_empty() {
                break;
            }
            let again = self.still_locked(locks, moved).await;
            moved = self.unlock_once(&again, &mut unlocked).await;
        }
        unlocked
    }

    /// Removes void locks. Returns the documents whose content is current.
    ///
    /// An acknowledged removal proves that the content is current, and so does a read after the
    /// verdict that the lock is void. A read before the verdict proves nothing: the holder may have
    /// been committed then, and since been applied and dropped with its day.
    pub(crate) async fn unlock_current(
        &self,
        locks: &[ForeignLock],
    ) -> Result<BTreeSet<Key>, Error> {
        let (mut current, mut open) = (BTreeSet::new(), Vec::new());
        for (key, unlocked) in self.unlock_all(locks).await {
            if unlocked? {
                current.insert(key);
            } else {
                open.push(key);
            }
        }
        let still = self.still_locked(locks, open).await;
        current.extend(still.into_iter().map(|lock| lock.key));
        Ok(current)
    }

    /// Sends each removal once. Returns the documents whose version has changed.
    async fn unlock_once(
        &self,
        locks: &[ForeignLock],
        unlocked: &mut BTreeMap<Key, Result<bool, Error>>,
    ) -> Vec<Key> {
        let mut writes = Vec::new();
        for ForeignLock { key, view } in locks {
            let Some(holder) = view.holder() else { continue };
            let step = unlocking(view, holder);
            if step == Applying::Damaged {
                let message = "another client wrote content into the placeholder of a transaction";
                let error = Error::damaged(message).at(key).in_transaction(holder);
                unlocked.insert(key.clone(), Err(error));
            } else if let Some(op) = step_write(step, view, Stored::clone) {
                unlocked.insert(key.clone(), Ok(false));
                writes.push((holder, Write::new(key.clone(), op)));
            }
        }
        if writes.is_empty() {
            return Vec::new();
        }
        let (holders, writes): (Vec<AttemptId>, Vec<Write>) = writes.into_iter().unzip();
        let outcomes = self.store.write_all(&writes).await;
        let mut moved = Vec::new();
        for ((tid, Write { key, .. }), outcome) in holders.into_iter().zip(writes).zip(outcomes) {
            match outcome {
                Outcome::Applied(_) => {
                    self.context.emit(&Event::Unlocked { tid, document: key.clone() });
                    unlocked.insert(key, Ok(true));
                }
                Outcome::Conflict => moved.push(key),
                _ => {}
            }
        }
        moved
    }

    /// The locks that are still over the same content.
    ///
    /// Another process may have changed the version by a touch. A placeholder counts only at its
    /// version.
    async fn still_locked(&self, locks: &[ForeignLock], keys: Vec<Key>) -> Vec<ForeignLock> {
        let looks = self.store.look_at(&keys, ReadPreference::Primary).await;
        let again = keys.into_iter().zip(looks).filter_map(|(key, look)| {
            let Look::Seen(view @ View::Present { .. }) = look else { return None };
            let before = locks.iter().find(|lock| lock.key == key)?;
            let same = match (&before.view, &view) {
                (
                    View::Present { version: v, stored: a, .. },
                    View::Present { version: w, stored: b, .. },
                ) => v == w || a == b && !a.absent,
                _ => false,
            };
            same.then_some(ForeignLock { key, view })
        });
        again.collect()
    }

    /// Removes the void lock of a transaction, if it is unchanged.
    ///
    /// Returns whether the removal was acknowledged.
    pub(crate) async fn unlock(
        &self,
        key: &Key,
        view: &View,
        holder: AttemptId,
    ) -> Result<bool, Error> {
        if view.holder() != Some(holder) {
            return Ok(false);
        }
        let lock = ForeignLock { key: key.clone(), view: view.clone() };
        self.unlock_all(&[lock]).await.remove(key).unwrap_or(Ok(false))
    }
}
