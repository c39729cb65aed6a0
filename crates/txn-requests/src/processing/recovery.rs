//! Recovery by state and age, and requests that need an operator.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use txn_core::CommitVersion;
use txn_lock::instance::wall_ms;

use crate::contents::selection::Selection;
use crate::error::{RequestError, Result};
use crate::model::{Entry, Reason, State};
use crate::processing::counts::tally::Tally;
use crate::processing::inner::{Inner, by_id, due_states, millis, readable};

/// How long a pass waits for unapplied commits of other processes.
const MAX_APPLY_WAIT: Duration = Duration::from_secs(30);

/// The reason why an open request makes no progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stuck {
    /// No processor has claimed the request.
    Unclaimed,
    /// A processor has the request. The processor lives, or is being watched.
    Held {
        /// The name of the processor, for operators.
        by: String,
    },
    /// The processor is dead, and no other one has taken over.
    Abandoned {
        /// The name of the processor, for operators.
        by: String,
    },
    /// The execution fails.
    Failing(Reason),
    /// The request is quarantined.
    Quarantined(Option<Reason>),
    /// The request is committed, and not marked as finished.
    Unfinished,
    /// The rollback of the request has started, and has not ended.
    Terminating,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclaimed => f.write_str("no processor has claimed it"),
            Self::Held { by } => write!(f, "{by} has it"),
            Self::Abandoned { by } => write!(f, "{by} had it and is dead"),
            Self::Failing(reason) | Self::Quarantined(Some(reason)) => write!(f, "{reason}"),
            Self::Quarantined(None) => f.write_str("it was set aside"),
            Self::Unfinished => f.write_str("it is committed and not marked as finished"),
            Self::Terminating => f.write_str("its rollback has started and has not ended"),
        }
    }
}

impl Inner {
    /// The requests in these states without a change for `age`, oldest first.
    pub(crate) async fn aged(
        &self,
        states: impl IntoIterator<Item = State>,
        application: Option<&str>,
        age: Duration,
    ) -> Result<Vec<Entry>> {
        let before = wall_ms(&self.domain).saturating_sub(millis(age));
        let selection = Selection::default().with_states(states).with_application_name(application);
        // A request that is not due is not late.
        let filter = due_states(selection.states.iter().copied(), before);
        let mut found = readable(self.select_by(filter, &selection).await?);
        found.retain(|entry| entry.times.modified_ms.max(entry.earliest_ms()) <= before);
        found.sort_by(|a, b| {
            a.times.modified_ms.cmp(&b.times.modified_ms).then_with(|| by_id(a, b))
        });
        Ok(found)
    }

    /// Runs one pass of the recovery.
    ///
    /// Also returns the longest lease of the processors that are watched from now on.
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
                        Err(RequestError::Engine(error))
                            if error.kind().is_transient_or_unknown() =>
                        {
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

    /// Marks requests as finished after a barrier reports their effects as applied.
    async fn finish_applied(&self, committed: BTreeSet<String>, tally: &mut Tally) -> Result<()> {
        let report = self.domain.barrier(MAX_APPLY_WAIT).await?;
        let transactions = report.unapplied.iter().filter(|write| write.error.tid().is_some());
        // `None`, because an unreadable record may be that of any request.
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
                // An operator must first repair a document. Without a pause such requests would
                // fill each pass, because they are the oldest.
                self.defer(&id, None);
                tally.failed += 1;
            }
        }
        Ok(())
    }

    /// Ends the rollback of a request. The request had no effect to undo.
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
