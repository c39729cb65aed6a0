//! Locks that are in the way, whoever meets them: their holders are waited for, put aside, or helped.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::help::{Met, Resolution, Resolutions};
use crate::engine::holder::{Holding, Lock};
use crate::store::Key;
use txn_protocol::rules::conflict::Requester;

impl Engine {
    /// Resolves locks that are in the way, and puts their holders aside if the rules allow it: all records are looked
    /// up at once, and each holder is decided and applied once, however many locks it has here.
    pub(crate) async fn resolve_locks(
        &self,
        requester: Requester,
        locks: impl IntoIterator<Item = Lock>,
        deadline: &Deadline,
    ) -> Result<BTreeMap<Key, Resolution>, AttemptError> {
        let (holdings, busy) = self.look_up(requester, locks, deadline).await?;
        let mut met: BTreeMap<Key, Resolution> =
            busy.into_iter().map(|lock| (lock.key, Resolution::Blocked)).collect();
        for holding in holdings {
            for (key, result) in self.resolve_holder(requester, holding, deadline).await? {
                met.insert(key, result?);
            }
        }
        Ok(met)
    }

    /// Resolves the locks of one holder, and its record if that was met.
    #[tracing::instrument(level = "debug", skip_all, fields(holder = %holding.holder))]
    pub(crate) async fn resolve_holder(
        &self,
        requester: Requester,
        holding: Holding,
        deadline: &Deadline,
    ) -> Result<Resolutions, AttemptError> {
        match self.meet(requester, holding, deadline).await? {
            Met::Resolved(met) => Ok(met),
            // Rare, and large.
            Met::Committed(apply, help) => {
                Box::pin(self.help(requester, apply, &help, deadline)).await
            }
        }
    }
}
