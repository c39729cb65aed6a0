//! The execution of one request: claim, effects and result.
//!
//! Effects and state change in one transaction. The request therefore happens once, even if several
//! processes execute it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use txn_core::{ErrorKind, LockMode, Options, WaitFor};
use txn_lock::backoff::Backoff;
use txn_lock::instance::{Dead, random, wall_ms};
use txn_lock::stored::Stored;
use txn_outbox::OutboxError;

use crate::contents::refusal::Refusal;
use crate::error::{RequestError, Result};
use crate::model::{Claim, Entry, Reason, State};
use crate::processing::apply::Stop;
use crate::processing::inner::{Deferral, Halt, Inner, millis};

/// The number of retries before a request is left for later.
///
/// Only transient errors are retried.
const TRIES: usize = 8;

/// The first pause of a request that has to wait.
const FIRST_DEFERRAL: Duration = Duration::from_secs(1);

/// The longest pause before a retry in the same process.
const LONGEST_DEFERRAL: Duration = Duration::from_secs(60);

/// The result of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processed {
    /// The request is committed.
    Committed,
    /// The request is rolled back, because an operation was refused.
    Refused,
    /// The execution failed, and will be retried.
    Failed,
    /// The request failed too often, and is quarantined.
    Quarantined,
    /// The request has to wait, for example for a full queue. The wait does not count.
    Waits,
    /// The request needs no execution by this process.
    NotOurs,
}

/// Marks a request as executed by this process, until the drop.
struct Working<'a> {
    inner: &'a Inner,
    id: &'a str,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.inner.working.lock().remove(self.id);
    }
}

enum Claimed {
    Ours(Box<Entry>),
    /// A processor died over the request: claim again under the suspects' lock.
    Suspect,
    Quarantined,
    NotOurs,
}

impl Inner {
    /// Executes a request, if no other process has a claim.
    ///
    /// `dead` is evidence that the previous processor is dead. If the returned future is dropped,
    /// the claim stays. Afterwards this process continues, or another process takes over after the
    /// death of this one.
    pub(crate) async fn process(
        self: &Arc<Self>,
        id: &str,
        dead: Option<&Dead>,
    ) -> Result<Processed> {
        if !self.working.lock().insert(id.to_owned()) {
            return Ok(Processed::NotOurs);
        }
        let _working = Working { inner: self, id };
        // The lease must not expire during the execution.
        let lease = self.instances.lease();
        if self.instances.valid_for().is_none_or(|left| left < lease / 2) {
            self.instances.beat().await?;
        }
        let grant = random(&self.domain);
        let mut alone = None;
        let entry = loop {
            match self.claim(id, &grant, dead, alone.is_some()).await? {
                Claimed::Ours(entry) => break entry,
                Claimed::Suspect => alone = Some(self.suspects.lock().await),
                Claimed::Quarantined => return Ok(Processed::Quarantined),
                Claimed::NotOurs => return Ok(Processed::NotOurs),
            }
        };
        self.watchers.changed(id);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut tries = 0;
        loop {
            let carried_out = AssertUnwindSafe(self.carry_out(&entry, &grant)).catch_unwind().await;
            let Ok(carried_out) = carried_out else {
                // The panic dropped the transaction, so the request had no effect.
                return self.failed(&entry, &grant, "the execution panicked").await;
            };
            let error = match carried_out {
                Ok(processed) => {
                    if !matches!(processed, Processed::Failed | Processed::Waits) {
                        self.deferred.lock().remove(id);
                    }
                    return Ok(processed);
                }
                Err(error) => error,
            };
            tries += 1;
            if !may_succeed_later(error.kind()) {
                return self.failed(&entry, &grant, &error.to_string()).await;
            }
            // The claim stays. A later execution detects a commit with an unknown outcome.
            if tries >= TRIES || self.closing.is_cancelled() {
                return Err(error.into());
            }
            let pause = backoff.next(self.domain.config().entropy());
            self.clock().sleep(pause).await;
        }
    }

    /// Claims a request.
    ///
    /// A separate write counts the death of the previous processor before the next execution, so
    /// that another death cannot lose the count.
    async fn claim(
        &self,
        id: &str,
        grant: &str,
        dead: Option<&Dead>,
        alone: bool,
    ) -> Result<Claimed> {
        let own = self.instances.id();
        let claim = Claim {
            instance: own.clone(),
            name: self.instances.name().to_owned(),
            grant: grant.to_owned(),
            lease_ms: millis(self.instances.lease()),
        };
        let claimed = self.domain.transact(async |tx| {
            let Some(mut entry) = self.read(tx, id).await? else { return Ok(Claimed::NotOurs) };
            let now = wall_ms(&self.domain);
            if !self.can_emit(&entry.request) || entry.earliest_ms() > now {
                return Ok(Claimed::NotOurs);
            }
            match (entry.state, &entry.claim) {
                (State::Created, _) => {}
                // The previous execution in this process has ended.
                (State::Pending, Some(claim)) if claim.instance == own => {}
                (State::Pending, None) => {}
                (State::Pending, Some(_)) => match dead {
                    Some(dead) if self.instances.is_still_dead(tx, dead).await? => {
                        entry.deaths += 1;
                        entry.reason = Some(Reason::Died);
                    }
                    _ => return Ok(Claimed::NotOurs),
                },
                _ => return Ok(Claimed::NotOurs),
            }
            let config = &self.config;
            let claimed =
                if entry.failures >= config.max_failures || entry.deaths >= config.max_deaths {
                    entry.enter(State::Quarantined, now);
                    Claimed::Quarantined
                } else if entry.deaths > 0 && !alone {
                    if entry.state == State::Created {
                        return Ok(Claimed::Suspect);
                    }
                    entry.enter(State::Created, now);
                    Claimed::Suspect
                } else {
                    entry.claim = Some(claim.clone());
                    entry.enter(State::Pending, now);
                    Claimed::Ours(Box::new(entry.clone()))
                };
            tx.put(&self.entries, id, &Stored::Known(entry))?;
            Ok::<_, RequestError>(claimed)
        });
        claimed.await
    }

    /// Commits the effects and the new state of a request together.
    async fn carry_out(
        self: &Arc<Self>,
        entry: &Entry,
        grant: &str,
    ) -> Result<Processed, txn_core::Error> {
        let id = entry.id.as_str();
        let handles = match self.handles_of(&entry.request).await {
            Ok(handles) => handles,
            Err(RequestError::Engine(error)) => return Err(error),
            Err(error) => return self.told(self.failed(entry, grant, &error.to_string()).await),
        };
        let options = Options::default().with_wait_for(WaitFor::Apply);
        // A reversal needs the commit version of this request alone.
        let options = options.with_lock_mode(LockMode::AtCommitUngrouped);
        let done = self.domain.run(&options, async |tx| {
            let found = self.read(tx, id).await.map_err(Halt::Failed)?;
            let Some(mut found) = found.filter(|found| found.is_claimed_as(grant)) else {
                return Ok(None);
            };
            let undo = self.effects(tx, &handles, &found.request).await?;
            found.undo = Some(undo);
            found.reason = None;
            found.enter(State::Committed, wall_ms(&self.domain));
            tx.put(&self.entries, id, &Stored::Known(found))?;
            Ok::<_, Halt>(Some(()))
        });
        match done.await {
            Ok(done) => {
                self.watchers.changed(id);
                if done.value.is_none() {
                    // The request was cancelled, taken over, or committed by an earlier try without
                    // an answer.
                    return self.told(self.whatever_became_of(id).await);
                }
                if done.receipt.applied {
                    let finished = self.finish(id, done.receipt.commit_version).await;
                    if let Err(error) = finished {
                        tracing::debug!(%error, "a request is marked as finished later");
                    }
                }
                Ok(Processed::Committed)
            }
            Err(Halt::Stop(Stop::Refused(refusal))) => {
                self.told(self.refused(id, grant, &refusal).await)
            }
            Err(Halt::Stop(Stop::Engine(error))) => Err(error),
            Err(Halt::Failed(RequestError::Outbox(error)))
                if !matches!(*error, OutboxError::Full { .. }) =>
            {
                self.told(self.failed(entry, grant, &error.to_string()).await)
            }
            Err(Halt::Failed(error @ (RequestError::Outbox(_) | RequestError::Companion(_)))) => {
                self.told(self.waits(entry, grant, &error.to_string()).await)
            }
            Err(Halt::Failed(error)) => self.told(Err(error)),
        }
    }

    /// Ends a request that its documents refuse.
    async fn refused(&self, id: &str, grant: &str, refusal: &Refusal) -> Result<Processed> {
        let refused = self.change(id, |entry, now| {
            let ours = entry.is_claimed_as(grant);
            if ours {
                entry.reason = Some(Reason::Refused(refusal.clone()));
                entry.enter(State::RolledBack, now);
            }
            Ok((ours, Processed::Refused))
        });
        refused.await
    }

    /// Releases a request that has to wait.
    ///
    /// Another process may take the request in the meantime. The pauses of this process grow, so
    /// that the request delays no other request.
    async fn waits(&self, entry: &Entry, grant: &str, why: &str) -> Result<Processed> {
        let waits = self.change(&entry.id, |entry, now| {
            let ours = entry.is_claimed_as(grant);
            if ours {
                entry.reason = Some(Reason::Failed(why.to_owned()));
                entry.enter(State::Created, now);
            }
            Ok((ours, if ours { Processed::Waits } else { Processed::NotOurs }))
        });
        let processed = waits.await?;
        if processed == Processed::Waits {
            self.defer(&entry.id, None);
        }
        Ok(processed)
    }

    /// Returns errors of the engine, and logs all other errors.
    fn told(&self, done: Result<Processed>) -> Result<Processed, txn_core::Error> {
        match done {
            Ok(processed) => Ok(processed),
            Err(RequestError::Engine(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a request was left as it is");
                Ok(Processed::NotOurs)
            }
        }
    }

    async fn whatever_became_of(&self, id: &str) -> Result<Processed> {
        let found = self.find(id).await?;
        Ok(match found {
            Some(found) if found.state.is_committed() => Processed::Committed,
            _ => Processed::NotOurs,
        })
    }

    /// Counts a failure, and releases the request or quarantines it.
    async fn failed(&self, entry: &Entry, grant: &str, why: &str) -> Result<Processed> {
        let most = self.config.max_failures;
        let (processed, failures) = self
            .change(&entry.id, |entry, now| {
                if !entry.is_claimed_as(grant) {
                    return Ok((false, (Processed::NotOurs, entry.failures)));
                }
                entry.failures += 1;
                entry.reason = Some(Reason::Failed(why.to_owned()));
                let (state, processed) = match entry.failures >= most {
                    true => (State::Quarantined, Processed::Quarantined),
                    false => (State::Created, Processed::Failed),
                };
                entry.enter(state, now);
                Ok((true, (processed, entry.failures)))
            })
            .await?;
        if processed == Processed::Failed {
            let pause = Duration::from_millis(100).saturating_mul(1 << failures.min(16));
            self.defer(&entry.id, Some(pause));
        } else {
            self.deferred.lock().remove(&entry.id);
        }
        Ok(processed)
    }

    /// Defers a request for `pause`, or for twice its last pause.
    pub(crate) fn defer(&self, id: &str, pause: Option<Duration>) {
        let mut deferred = self.deferred.lock();
        if deferred.len() >= self.config.max_open {
            deferred.clear();
        }
        let before = deferred.get(id).map_or(FIRST_DEFERRAL / 2, |deferral| deferral.pause);
        let pause = pause.unwrap_or(before * 2).min(LONGEST_DEFERRAL);
        deferred.insert(id.to_owned(), Deferral { until: self.now() + pause, pause });
    }
}

/// Whether a further try of the same execution may succeed.
fn may_succeed_later(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::Overloaded | ErrorKind::Unknown | ErrorKind::Exists
    )
}
