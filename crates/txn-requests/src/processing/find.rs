//! The open requests that this process may execute.

use std::time::Duration;

use txn_lock::instance::{Dead, wall_ms};

use crate::contents::selection::Selection;
use crate::error::Result;
use crate::model::{Entry, State};
use crate::processing::inner::Inner;

impl Inner {
    /// The requests that this process may execute, oldest first.
    ///
    /// Each comes with evidence if its processor is dead.
    pub(crate) async fn find_work(
        &self,
        application: Option<&str>,
    ) -> Result<Vec<(Entry, Option<Dead>)>> {
        let selection = Selection::default()
            .with_states([State::Created, State::Pending])
            .with_application_name(application);
        let (mut work, now) = (Vec::new(), wall_ms(&self.domain));
        for entry in self.select(&selection).await? {
            if work.len() >= self.config.batch {
                break;
            }
            // Requests that only other processes can execute must not fill the batch.
            let is_early = entry.due_ms() > now;
            let cannot = is_early || self.is_deferred(&entry.id) || !self.can_emit(&entry.request);
            if cannot || self.working.lock().contains(&entry.id) {
                continue;
            }
            if let Some(dead) = self.may_take(&entry).await? {
                work.push((entry, dead));
            }
        }
        Ok(work)
    }

    /// Whether a request is free. The inner value is evidence of a dead processor.
    pub(crate) async fn may_take(&self, entry: &Entry) -> Result<Option<Option<Dead>>> {
        let claim = match &entry.claim {
            Some(claim) if entry.state == State::Pending => claim,
            _ => return Ok(Some(None)),
        };
        if claim.instance == self.instances.id() {
            return Ok(Some(None));
        }
        let lease = Duration::from_millis(claim.lease_ms);
        Ok(self.instances.look(&claim.instance, lease).await?.map(Some))
    }

    pub(crate) fn is_deferred(&self, id: &str) -> bool {
        self.deferred.lock().get(id).is_some_and(|deferral| deferral.until > self.now())
    }
}
