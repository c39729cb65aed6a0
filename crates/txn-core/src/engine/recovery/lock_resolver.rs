//! Resolves the locks of other transactions, once for each holder.

use std::collections::BTreeMap;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::holders::foreign_lock::{ForeignLock, Holding};
use crate::engine::recovery::Recovery;
use crate::engine::recovery::roll_forward::{HolderWork, Resolution, Resolutions};
use txn_protocol::rules::conflict::Requester;
use txn_store::Key;

impl Recovery {
    /// Resolves foreign locks, if the rules allow it.
    ///
    /// The engine reads all records at once. Each holder is decided and rolled forward once, even
    /// if it has several of the locks.
    pub(crate) async fn resolve_locks(
        &self,
        requester: Requester,
        locks: impl IntoIterator<Item = ForeignLock>,
        deadline: &Deadline,
    ) -> Result<BTreeMap<Key, Resolution>, AttemptError> {
        let (holdings, busy) = self.verdicts.look_up(requester, locks, deadline).await?;
        let mut resolved: BTreeMap<Key, Resolution> =
            busy.into_iter().map(|lock| (lock.key, Resolution::Blocked)).collect();
        for holding in holdings {
            for (key, result) in self.resolve_holder(requester, holding, deadline).await? {
                resolved.insert(key, result?);
            }
        }
        Ok(resolved)
    }

    /// Resolves the locks of one holder, and its record if requested.
    #[tracing::instrument(level = "debug", skip_all, fields(holder = %holding.holder))]
    pub(crate) async fn resolve_holder(
        &self,
        requester: Requester,
        holding: Holding,
        deadline: &Deadline,
    ) -> Result<Resolutions, AttemptError> {
        match self.decide_holder(requester, holding, deadline).await? {
            HolderWork::Done(resolved) => Ok(resolved),
            // Boxed, because the future is large and this path is rare.
            HolderWork::RollForward(apply, foreign) => {
                Box::pin(self.roll_foreign_forward(requester, apply, &foreign, deadline)).await
            }
        }
    }
}
