//! The attempt of one caller to take a lock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::backoff::Backoff;
use crate::error::{LockError, Result};
use crate::granting::fairness::{Applicant, next};
use crate::granting::grant::Grant;
use crate::granting::queue::Turn;
use crate::holding::guard::{Guard, Held};
use crate::inner::Inner;
use crate::instance::{Dead, random};
use crate::records::model::{Holder, LockName, Waiter};
use crate::records::repository::{Created, Leaving};

/// The first pause between two reads of a lock.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The last observation of a waiting caller. A timeout reports it.
#[derive(Debug, Default)]
pub(crate) struct Last {
    pub(crate) holder: Option<Holder>,
    pub(crate) failure: Option<txn_core::Error>,
}

/// The attempt of one caller to take a lock.
///
/// Unless the attempt ends in a guard, a background task releases each grant that the attempt may
/// have written.
pub(crate) struct Attempt<'a> {
    inner: &'a Arc<Inner>,
    name: LockName,
    grant: String,
    /// Whether the store may contain this grant or this process's wait entry.
    sent: Mutex<bool>,
}

pub(crate) enum Tried {
    Granted(Arc<Grant>),
    Held(Holder),
    /// The lock is free, and reserved for another waiting instance.
    Reserved(Waiter),
}

/// The knowledge that one request for a lock uses.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    /// The dead holder, and the grant of this holder.
    pub(crate) dead: Option<(Dead, String)>,
    /// Instances that did not take the free lock within their patience.
    pub(crate) passed_over: Vec<String>,
    /// Whether the lock document lists this process as waiting.
    pub(crate) waits: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(inner: &'a Arc<Inner>, name: LockName) -> Self {
        let grant = random(inner.repository.domain());
        Self { inner, name, grant, sent: Mutex::new(false) }
    }

    pub(crate) fn guard(&self, grant: Arc<Grant>, turn: Turn) -> Guard {
        *self.sent.lock() = false;
        Guard::new(Held { grant, inner: self.inner.clone() }, turn)
    }

    /// Requests the lock once. Takes the lock over from a dead holder.
    pub(crate) async fn once(&self, turn: &Turn, ask: &Ask) -> Result<Tried> {
        let Self { inner, name, grant, .. } = self;
        let line = turn.line();
        let dead = ask.dead.as_ref().map(|(dead, of)| (&inner.instances, dead, &**of));
        loop {
            if inner.closing.is_cancelled() {
                return Err(LockError::Closed);
            }
            if inner.instances.valid_for().is_none() {
                inner.beat().await?;
            }
            let lapses = inner.instances.lapses();
            let holder = inner.holder(grant);
            let longest = inner.config.longest_pause;
            let own = Waiter::new(holder.instance.clone(), longest);
            let applicant = Applicant {
                instance: &holder.instance,
                goes_on_at: line.tenure.lock().goes_on_at(inner.clock().monotonic(), longest),
                passed_over: &ask.passed_over,
                waits_as: Some(&own).filter(|_| ask.waits),
                has_more: line.is_waited_for(),
            };
            // An earlier request without an answer may still write the grant.
            let before = std::mem::replace(&mut *self.sent.lock(), true);
            let created = inner.repository.grant(name, &holder, dead, &applicant).await?;
            let refused = |tried| {
                *self.sent.lock() = before || ask.waits;
                Ok(tried)
            };
            let (token, abandoned) = match created {
                Created::Granted { token, abandoned } => (token, abandoned),
                Created::Reserved(waiter) => return refused(Tried::Reserved(waiter)),
                Created::Held(other) => return refused(Tried::Held(other)),
            };
            line.tenure.lock().granted(token, inner.clock().monotonic());
            let (name, grant) = (name.clone(), grant.clone());
            let granted = Grant::new(name, token, grant.clone(), holder.since_ms, abandoned);
            let granted = Arc::new(granted);
            inner.held.lock().insert(grant.clone(), granted.clone());
            // Other processes may have taken the lock over in the meantime. The next request then
            // shows the holder.
            if inner.instances.valid_for().is_some() && inner.instances.lapses() == lapses {
                if inner.closing.is_cancelled() {
                    inner.held.lock().remove(&grant);
                    return Err(LockError::Closed);
                }
                return Ok(Tried::Granted(granted));
            }
            inner.held.lock().remove(&grant);
        }
    }

    /// Waits in the local queue, and then for the holder elsewhere.
    pub(crate) async fn until_granted(&self, last: &mut Last) -> Result<(Arc<Grant>, Turn)> {
        let turn = self.inner.queues.of(&self.name).turn().await;
        let mut backoff = self.backoff();
        let mut ask = Ask { waits: true, ..Ask::default() };
        loop {
            match self.once(&turn, &ask).await {
                Ok(Tried::Granted(grant)) => return Ok((grant, turn)),
                Ok(Tried::Reserved(waiter)) => {
                    *last = Last::default();
                    let over = &ask.passed_over;
                    match self.watch_turn(&waiter, over, &mut backoff, last).await? {
                        Some(instance) => ask.passed_over.push(instance),
                        None => ask.passed_over.clear(),
                    }
                    backoff = self.backoff();
                }
                Ok(Tried::Held(holder)) => {
                    *last = Last { holder: Some(holder.clone()), failure: None };
                    ask.passed_over.clear();
                    ask.dead = self.watch(&holder, &mut backoff, last).await?;
                    let died = ask.dead.is_some();
                    if !died {
                        // The lock moved while this caller watched, and will probably move again
                        // soon.
                        backoff = self.backoff();
                    }
                    last.holder = last.holder.take().filter(|_| died);
                }
                Err(LockError::Engine(error)) if error.kind().is_transient_or_unknown() => {
                    last.failure = Some(error);
                    self.pause(&mut backoff).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Polls until the holder no longer holds the lock, or is dead. Polls write nothing.
    ///
    /// Returns the dead holder and its grant.
    async fn watch(
        &self,
        holder: &Holder,
        backoff: &mut Backoff,
        last: &mut Last,
    ) -> Result<Option<(Dead, String)>> {
        loop {
            match self.look(holder).await {
                Ok(Look::Dead(dead)) => return Ok(Some((dead, holder.grant.clone()))),
                Ok(Look::Gone) => return Ok(None),
                Ok(Look::Holds) => last.failure = None,
                Err(LockError::Engine(error)) if error.kind().is_transient_or_unknown() => {
                    last.failure = Some(error);
                }
                Err(error) => return Err(error),
            }
            self.pause(backoff).await;
        }
    }

    /// Polls a free lock until the next waiting instance takes it. Returns an instance that waits
    /// too long.
    ///
    /// An instance that does not take its lock within [`Waiter::patience`] counts as dead.
    async fn watch_turn(
        &self,
        waiter: &Waiter,
        passed_over: &[String],
        backoff: &mut Backoff,
        last: &mut Last,
    ) -> Result<Option<String>> {
        let clock = self.inner.clock();
        let since = clock.monotonic();
        loop {
            self.pause(backoff).await;
            let asked = clock.monotonic();
            match self.inner.repository.find(&self.name).await {
                Ok(Some(lock))
                    if lock.holder.is_none()
                        && next(&lock.waiting, passed_over) == Some(waiter) =>
                {
                    last.failure = None;
                }
                Ok(_) => return Ok(None),
                Err(LockError::Engine(error)) if error.kind().is_transient_or_unknown() => {
                    last.failure = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            if asked.saturating_sub(since) >= waiter.patience() {
                return Ok(Some(waiter.instance.clone()));
            }
        }
    }

    async fn look(&self, holder: &Holder) -> Result<Look> {
        let found = self.inner.repository.find(&self.name).await?;
        if !found.is_some_and(|lock| lock.is_held_by(&holder.grant)) {
            return Ok(Look::Gone);
        }
        Ok(self.inner.look(holder).await?.map_or(Look::Holds, Look::Dead))
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(FIRST_PAUSE, self.inner.config.longest_pause)
    }

    async fn pause(&self, backoff: &mut Backoff) {
        let config = self.inner.repository.domain().config();
        config.clock().sleep(backoff.next(config.entropy())).await;
    }
}

/// The state of a holder.
enum Look {
    Holds,
    Gone,
    Dead(Dead),
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if *self.sent.lock() {
            let grant = (self.name.clone(), self.grant.clone());
            self.inner.unreleased.lock().entry(grant).or_insert(Leaving::Unused);
            self.inner.stirred.notify_one();
        }
    }
}
