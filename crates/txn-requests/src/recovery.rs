//! Recovery by state and age, and what needs a person.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use txn_core::CommitVersion;
use txn_lock::instance::wall_ms;

use crate::error::{RequestError, Result};
use crate::inner::{Inner, by_id, millis};
use crate::model::{Entry, Reason, State, Status};
use crate::processor::Tally;
use crate::requests::Requests;
use crate::selection::Selection;

/// How long a pass waits until what others committed is applied.
const APPLY: Duration = Duration::from_secs(30);

/// Why an open request makes no progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stuck {
    /// No processor took it up.
    Unclaimed,
    /// A processor has it, which lives or is being watched.
    Held {
        /// The processor, for people.
        by: String,
    },
    /// The processor that had it is dead, and no other took it over.
    Abandoned {
        /// The processor, for people.
        by: String,
    },
    /// Trying it fails.
    Failing(Reason),
    /// It was set aside.
    Quarantined(Option<Reason>),
    /// It is committed, and not marked as finished.
    Unfinished,
    /// It is to be rolled back, and nobody did.
    Terminating,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclaimed => f.write_str("no processor took it up"),
            Self::Held { by } => write!(f, "{by} has it"),
            Self::Abandoned { by } => write!(f, "{by} had it and is dead"),
            Self::Failing(reason) | Self::Quarantined(Some(reason)) => write!(f, "{reason}"),
            Self::Quarantined(None) => f.write_str("it was set aside"),
            Self::Unfinished => f.write_str("it is committed and not marked as finished"),
            Self::Terminating => f.write_str("its rolling back was begun and not ended"),
        }
    }
}

impl Requests {
    /// Recovers requests that have stood unchanged for
    /// [`RequestsConfig::recover_after`](crate::RequestsConfig::recover_after), the oldest first, one
    /// [`RequestsConfig::batch`](crate::RequestsConfig::batch) of them: created ones are processed, pending ones taken
    /// over if their processor is dead, terminating ones rolled back, committed ones marked as finished once all of
    /// them is applied. If processors have to be watched first, it takes their lease.
    ///
    /// # Errors
    /// As [`Requests::list`]. What goes wrong with a single request is left for the next pass.
    pub async fn recover(&self, application: Option<&str>) -> Result<Tally> {
        let (mut tally, watched) = self.inner.recover_pass(application).await?;
        if let Some(lease) = watched {
            self.inner.clock().sleep(lease).await;
            let (more, _) = self.inner.recover_pass(application).await?;
            tally += more;
        }
        Ok(tally)
    }

    /// Requests that have been open, or set aside, without a change for `age` (an hour is a good one), the oldest first,
    /// each with the reason.
    ///
    /// # Errors
    /// As [`Requests::list`].
    pub async fn stuck(&self, age: Duration) -> Result<Vec<(Status, Stuck)>> {
        let inner = &self.inner;
        let mut stuck = Vec::new();
        let states = State::OPEN.into_iter().chain([State::Quarantined]);
        for entry in inner.aged(states, None, age).await? {
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

impl Inner {
    /// Requests in these states that have stood unchanged for so long, those first that have longest.
    async fn aged(
        &self,
        states: impl IntoIterator<Item = State>,
        application: Option<&str>,
        age: Duration,
    ) -> Result<Vec<Entry>> {
        let before = wall_ms(&self.domain).saturating_sub(millis(age));
        let selection = Selection::default().with_states(states).with_application(application);
        let mut found = self.select(&selection).await?;
        found.retain(|entry| entry.times.modified_ms <= before);
        found.sort_by(|a, b| {
            a.times.modified_ms.cmp(&b.times.modified_ms).then_with(|| by_id(a, b))
        });
        Ok(found)
    }

    /// One pass of the recovery. Returns also the longest lease of processors that are watched from now on.
    pub(crate) async fn recover_pass(
        self: &Arc<Self>,
        application: Option<&str>,
    ) -> Result<(Tally, Option<Duration>)> {
        let mut tally = Tally::default();
        let mut watched: Option<Duration> = None;
        let mut committed = BTreeSet::new();
        let mut found = self.aged(State::OPEN, application, self.config.recover_after).await?;
        found.retain(|entry| match entry.state {
            State::Terminating => true,
            State::Committed => !self.is_deferred(&entry.id),
            _ => self.can_emit(&entry.request) && !self.is_deferred(&entry.id),
        });
        for entry in found.into_iter().take(self.config.batch) {
            match entry.state {
                State::Committed => {
                    committed.insert(entry.id);
                }
                State::Terminating => {
                    tally.rolled_back += usize::from(self.terminate(&entry.id).await?);
                }
                _ => match self.may_take(&entry).await? {
                    Some(dead) => match self.process(&entry.id, dead.as_ref()).await {
                        Ok(processed) => tally.count(processed),
                        Err(RequestError::Engine(error)) if error.kind().passes() => {
                            tally.failed += 1;
                        }
                        Err(error) => return Err(error),
                    },
                    None => {
                        let lease = entry.claim.map(|claim| Duration::from_millis(claim.lease_ms));
                        watched = watched.max(lease);
                    }
                },
            }
        }
        if !committed.is_empty() {
            self.finish_applied(committed, &mut tally).await?;
        }
        Ok((tally, watched))
    }

    /// Marks requests as finished once a barrier says that their effects are applied.
    async fn finish_applied(&self, committed: BTreeSet<String>, tally: &mut Tally) -> Result<()> {
        let report = self.domain.barrier(APPLY).await?;
        let transactions = report.unapplied.iter().filter(|write| write.error.tid().is_some());
        // `None`: a record that cannot be read may be that of any request.
        let unapplied: Option<BTreeSet<CommitVersion>> =
            transactions.map(|write| write.commit_version).collect();
        for id in committed {
            let finished = match &unapplied {
                Some(unapplied) => self.finish_unless(&id, None, unapplied).await?,
                None => false,
            };
            if finished {
                self.deferred.lock().remove(&id);
                tally.finished += 1;
            } else {
                // A person has to mend a document first. Without a pause such requests would fill
                // each pass, for they are the oldest.
                self.defer(&id, None);
                tally.failed += 1;
            }
        }
        Ok(())
    }

    /// Ends the rolling back of a request. Nothing of it ever happened, so there is nothing to undo.
    pub(crate) async fn terminate(&self, id: &str) -> Result<bool> {
        self.change(id, |entry, now| {
            let terminating = entry.state == State::Terminating;
            if terminating {
                entry.enter(State::RolledBack, now);
            }
            Ok((terminating, terminating))
        })
        .await
    }
}
