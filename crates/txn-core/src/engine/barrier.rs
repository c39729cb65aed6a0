//! The barrier: waits until everything that was acknowledged before it is applied, and searches see it.

use std::collections::BTreeSet;

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::failure_detector::LookedAt;
use crate::engine::holder::Holding;
use crate::engine::pages::PAGE;
use crate::engine::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::store::Filter;
use txn_protocol::ids::{AttemptId, Day};
use txn_protocol::record::State;
use txn_protocol::rules::conflict::{HolderState, Requester};

impl Engine {
    /// See [`Domain::barrier`](crate::Domain::barrier).
    #[tracing::instrument(level = "debug", skip_all, fields(domain = %self.table.domain()))]
    pub(crate) async fn barrier(&self, deadline: &Deadline) -> Result<(), AttemptError> {
        let (document, ..) = self.domain_document(deadline).await?;
        let mut committed = BTreeSet::new();
        for (day, partition) in &document.partitions {
            self.find_committed(*day, partition, &mut committed, deadline).await?;
        }
        self.wait_until_applied(committed, deadline).await?;
        for name in document.collections.keys() {
            self.refresh(name, deadline).await?;
        }
        Ok(())
    }

    /// The transactions of one day that are committed and not finished. A record that was acknowledged is found, for
    /// the partition is refreshed first.
    async fn find_committed(
        &self,
        day: Day,
        partition: &str,
        committed: &mut BTreeSet<AttemptId>,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let open = Filter::any_of(crate::fields::STATE, ["staged", "committed"]);
        match self.refresh(partition, deadline).await {
            // Dropped meanwhile: everything in it was finished.
            Err(AttemptError::Fail(error))
                if error.kind() == ErrorKind::Misconfigured
                    && self.domain_document(deadline).await?.0.is_gone(day) =>
            {
                return Ok(());
            }
            refreshed => refreshed?,
        }
        let mut pages = self.pages(partition, open, PAGE);
        while let Some(documents) = self.next_page(&mut pages, deadline).await? {
            for (key, ..) in documents {
                let tid = key.id.parse();
                let foreign = |_| Error::damaged("it is no record of a transaction").at(&key);
                committed.insert(tid.map_err(foreign)?);
            }
        }
        Ok(())
    }

    /// Waits for the owners, and takes the place of those that show no sign of life for their lease.
    async fn wait_until_applied(
        &self,
        mut committed: BTreeSet<AttemptId>,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let mut backoff = self.backoff();
        loop {
            // The owner of one that lives here is at it.
            let away =
                committed.iter().copied().filter(|tid| !self.live_attempts.is_live(*tid)).collect();
            let asked = self.now();
            let records = self.records(&away, ReadPreference::Primary, deadline).await?;
            let at = LookedAt { asked, answered: self.now() };
            for (tid, found) in records {
                let HolderState::Record(State::Committed | State::Staged) = found.state() else {
                    committed.remove(&tid);
                    continue;
                };
                let (key, lease) =
                    (self.table.record_key(tid), self.config.lease_of(tid.attempt()));
                if !self.liveness.is_dead(tid, &key, found.version(), lease, at) {
                    continue;
                }
                let holding = Holding { holder: tid, locks: Vec::new(), found, at, whole: true };
                let met = self.resolve_holder(Requester::Patient, holding, deadline).await?;
                met.into_values().collect::<Result<Vec<_>, _>>()?;
            }
            let Some(first) = committed.first().copied() else { return Ok(()) };
            let reason = WaitReason::Changing(self.table.record_key(first));
            self.pause(deadline, &mut backoff, reason).await.map_err(|_| {
                let message = format!(
                    "{} committed transactions were not applied before the deadline, this is the first of them",
                    committed.len()
                );
                Error::new(ErrorKind::Conflict, message).in_transaction(first)
            })?;
        }
    }
}
