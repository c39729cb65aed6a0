//! The execution of requests, as the application starts it.

use std::time::Duration;

use txn_lock::instance::wall_ms;

use crate::contents::selection::Selection;
use crate::error::Result;
use crate::model::{State, Status};
use crate::processing::counts::open::OpenCounts;
use crate::processing::counts::tally::Tally;
use crate::processing::inner::readable;
use crate::processing::processor::Processor;
use crate::processing::recovery::Stuck;
use crate::requests::Requests;

impl Requests {
    /// Starts a processor for the requests of one application, or of all.
    ///
    /// Any number of processors may run in any number of processes, and each request still has one
    /// effect. Each processor also runs the recovery, every
    /// [`RequestsConfig::recover_every`](crate::RequestsConfig::recover_every).
    #[must_use = "a processor ends when its handle is dropped"]
    pub fn start(&self, application: Option<&str>) -> Processor {
        Processor::start(&self.inner, application.map(str::to_owned))
    }

    /// Executes the open requests once, oldest first, and returns.
    ///
    /// The call takes unclaimed requests, and those of processors that an earlier call observed as
    /// dead.
    ///
    /// # Errors
    /// As [`Requests::list`]. Failures of single requests only count in the [`Tally`].
    pub async fn process_open(&self, application: Option<&str>) -> Result<Tally> {
        let mut tally = Tally::default();
        for (entry, dead) in self.inner.find_work(application).await?.requests {
            tally.count(self.inner.process(&entry.id, dead.as_ref()).await?);
        }
        Ok(tally)
    }

    /// Recovers requests without a recent change, oldest first.
    ///
    /// The call recovers up to [`RequestsConfig::batch`](crate::RequestsConfig::batch) requests
    /// that have not changed for
    /// [`RequestsConfig::recover_after`](crate::RequestsConfig::recover_after). Created requests
    /// are executed, and pending ones if their processor is dead. Terminating requests are rolled
    /// back. Committed requests are marked as finished after their effects are applied. If
    /// processors must be watched first, the call takes one of their leases longer.
    ///
    /// # Errors
    /// As [`Requests::list`]. The next pass retries requests that failed.
    pub async fn recover(&self, application: Option<&str>) -> Result<Tally> {
        let (mut tally, watched) = self.inner.recover_pass(application).await?;
        if let Some(lease) = watched {
            self.inner.clock().sleep(lease).await;
            let (more, _) = self.inner.recover_pass(application).await?;
            tally += more;
        }
        Ok(tally)
    }

    /// Counts the requests that are open or quarantined.
    ///
    /// The call scans all requests in these states. A request of a newer version is not counted.
    ///
    /// # Errors
    /// [`RequestError::Store`](crate::RequestError::Store), or an error of the engine.
    pub async fn counts(&self) -> Result<OpenCounts> {
        let selection = Selection::default().with_states(OpenCounts::states());
        let entries = readable(self.inner.select_all(&selection).await?);
        Ok(OpenCounts::of(&entries, wall_ms(&self.inner.domain)))
    }

    /// Lists quarantined requests, and open ones without a change for `age`.
    ///
    /// The oldest come first, each with the reason. A good `age` is one hour.
    ///
    /// # Errors
    /// As [`Requests::list`].
    pub async fn stuck(&self, age: Duration) -> Result<Vec<(Status, Stuck)>> {
        let inner = &self.inner;
        let mut stuck = Vec::new();
        let mut found = inner.aged(State::OPEN, None, age).await?;
        // Only an operator ends the quarantine, so its age does not matter.
        found.extend(inner.aged([State::Quarantined], None, Duration::ZERO).await?);
        found.sort_by_key(|entry| entry.times.modified_ms);
        for entry in found {
            let by = entry.claim.as_ref().map(|claim| claim.name.clone());
            let why = match (entry.state, by, &entry.reason) {
                (State::Quarantined, _, reason) => Stuck::Quarantined(reason.clone()),
                (State::Committed, ..) => Stuck::Unfinished,
                (State::Terminating, ..) => Stuck::Terminating,
                (State::Pending, Some(by), _) => match inner.may_take(&entry).await? {
                    Some(Some(_)) => Stuck::Abandoned { by },
                    _ => Stuck::Held { by },
                },
                (_, _, Some(reason)) => Stuck::Failing(reason.clone()),
                _ => Stuck::Unclaimed,
            };
            stuck.push((entry.status(), why));
        }
        Ok(stuck)
    }
}
