//! The lock service: what an application calls.

use std::sync::Arc;
use std::time::Duration;

use txn_core::Domain;

use crate::attempt::{Ask, Attempt, Last, Tried};
use crate::config::LockConfig;
use crate::error::{LockError, Loss, Result, Timeout};
use crate::guard::{Guard, Held};
use crate::inner::Inner;
use crate::instance::wall_ms;
use crate::model::{Holder, Lock, LockName};
use crate::renew;
use crate::repository::{Known, LockRepository};

/// Locks of one domain; cheap to clone. One service is one instance: others see by it whether this process lives.
///
/// A lock is a document of the collection `<domain>-locks`. Its fencing token grows with every grant. As long as
/// anything is held the instance shows a sign of life every third of the lease; others take its locks once they saw
/// none for a lease, by their own clocks.
#[derive(Clone, Debug)]
pub struct LockService {
    inner: Arc<Inner>,
}

impl LockService {
    /// Opens the locks of a domain.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`], or the engine's.
    pub async fn open(domain: &Domain, config: LockConfig) -> Result<Self> {
        let inner = Inner::open(domain, config).await?;
        renew::start(&inner);
        Ok(Self { inner })
    }

    /// The documents beneath the service.
    #[must_use]
    pub fn repository(&self) -> &LockRepository {
        &self.inner.repository
    }

    /// The id of this instance, as others see it in [`Holder::instance`].
    #[must_use]
    pub fn instance(&self) -> String {
        self.inner.instances.id()
    }

    /// Takes a lock if nobody holds it and it is no waiting process's turn, and does not wait for its holder. A holder that is dead is noticed by the
    /// second call, a lease after the first.
    ///
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::NewerFormat`], [`LockError::Closed`], or the engine's: then it is not
    /// held.
    ///
    /// # Cancel safety
    /// Dropped, it is not held, or given back in the background.
    pub async fn try_lock(&self, category: &str, id: &str) -> Result<Option<Guard>> {
        let name = LockName::new(category, id)?;
        let Some(turn) = self.inner.queues.of(&name).try_turn() else { return Ok(None) };
        let attempt = Attempt::new(&self.inner, name);
        let ask = Ask::default();
        match attempt.once(&turn, &ask).await? {
            Tried::Granted(grant) => Ok(Some(attempt.guard(grant, turn))),
            Tried::Reserved(_) => Ok(None),
            Tried::Held(holder) => {
                let Some(dead) = self.inner.look(&holder).await? else { return Ok(None) };
                let ask = Ask { dead: Some((dead, holder.grant)), ..ask };
                match attempt.once(&turn, &ask).await? {
                    Tried::Granted(grant) => Ok(Some(attempt.guard(grant, turn))),
                    Tried::Held(_) | Tried::Reserved(_) => Ok(None),
                }
            }
        }
    }

    /// Takes a lock, and waits for it at most for `timeout`, and one pause more to say who holds it. Callers of this process get it in the order in which they
    /// came, and wake when it is given back; a holder in another process is looked at again and again, with growing
    /// pauses, and so is whether it lives. While another process waits, the callers of one process get it at most 8 times in
    /// a row, and for no longer than [`LockConfig::longest_pause`] in a row beyond the first time.
    ///
    /// # Errors
    /// [`LockError::Timeout`], which says who holds it since when; [`LockError::Busy`], [`LockError::InvalidName`],
    /// [`LockError::NewerFormat`], [`LockError::Closed`], or the engine's, but for those that pass by themselves.
    ///
    /// # Cancel safety
    /// Dropped, it is not held, or given back in the background; the place in the queue is lost.
    pub async fn lock(&self, category: &str, id: &str, timeout: Duration) -> Result<Guard> {
        let name = LockName::new(category, id)?;
        let busy = |waiting| LockError::Busy { waiting };
        let _waiting = self.inner.queues.enter(self.inner.config.max_waiting).map_err(busy)?;
        let clock = self.inner.clock();
        let began = clock.monotonic();
        let attempt = Attempt::new(&self.inner, name.clone());
        let mut last = Last::default();
        let granted = tokio::select! {
            biased;
            granted = attempt.until_granted(&mut last) => Some(granted),
            () = clock.sleep(timeout) => None,
        };
        match granted {
            Some(granted) => {
                let (grant, turn) = granted?;
                Ok(attempt.guard(grant, turn))
            }
            None => {
                let waited = clock.monotonic().saturating_sub(began);
                let mut holder = last.holder.or_else(|| self.inner.holder_here(&name));
                if holder.is_none() {
                    // Whoever was before this caller in the queue may have seen it: one look more.
                    holder = tokio::select! {
                        biased;
                        found = self.inner.repository.find(&name) => found.ok().flatten().and_then(|lock| lock.holder),
                        () = clock.sleep(self.inner.config.longest_pause) => None,
                    };
                }
                let failure = last.failure;
                Err(LockError::Timeout(Box::new(Timeout { lock: name, waited, holder, failure })))
            }
        }
    }

    /// Runs `closure` while a lock is held, waiting for it at most for `timeout`, and gives it back afterwards,
    /// whatever became of the closure. What the closure gets says whether the lock is lost meanwhile.
    ///
    /// # Errors
    /// As [`LockService::lock`], and then the closure did not run; the closure's own error; [`LockError::Lost`] if the
    /// closure went well and the lock was lost before it was given back.
    ///
    /// # Cancel safety
    /// Dropped, the closure is dropped, and the lock is given back in the background.
    pub async fn do_in_lock<T, E, F, R>(
        &self,
        category: &str,
        id: &str,
        timeout: Duration,
        closure: F,
    ) -> Result<T, E>
    where
        F: FnOnce(Held) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<LockError>,
    {
        let guard = self.lock(category, id, timeout).await?;
        let done = closure(guard.held()).await;
        match (done, guard.unlock().await) {
            (Ok(_), Err(lost @ LockError::Lost { .. })) => Err(lost.into()),
            // What the store did not take back yet is given back in the background.
            (done, _) => done,
        }
    }

    /// Every lock that is held, by name. Several looks are no snapshot.
    ///
    /// # Errors
    /// As [`LockRepository::list`].
    pub async fn list(&self) -> Result<Vec<Lock>> {
        let locks = self.inner.repository.list().await?;
        Ok(locks.into_iter().filter(|lock| lock.holder.is_some()).collect())
    }

    /// As [`LockService::list`], without those whose format is newer than this program: of them only the names are told. So
    /// one of them hides no other.
    ///
    /// # Errors
    /// As [`LockRepository::list`], but for [`LockError::NewerFormat`].
    pub async fn list_known(&self) -> Result<Known> {
        let mut known = self.inner.repository.list_known().await?;
        known.locks.retain(|lock| lock.holder.is_some());
        Ok(known)
    }

    /// Whether the holder of a lock is dead: it showed no sign of life for its lease, by the clock of this process, while
    /// this service watched it. The first question begins the watch. Whoever asks often can take the lock over a lease
    /// after its holder died, by [`LockService::try_lock`].
    ///
    /// # Errors
    /// The engine's.
    pub async fn is_dead(&self, holder: &Holder) -> Result<bool> {
        if holder.instance == self.inner.instances.id() {
            return Ok(false);
        }
        Ok(self.inner.look(holder).await?.is_some())
    }

    /// Takes a lock from whoever holds it, without asking: its guard says lost within a third of a lease, and its
    /// fencing token is refused at once. Returns who held it; `None` if nobody did.
    ///
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::NewerFormat`], or the engine's.
    pub async fn break_lock(&self, category: &str, id: &str) -> Result<Option<Holder>> {
        let name = LockName::new(category, id)?;
        let broken = self.inner.repository.take_away(&name, None).await?;
        if let Some(holder) = &broken {
            let own = self.inner.held.lock().remove(&holder.grant);
            own.iter().for_each(|grant| grant.lose(Loss::Taken));
        }
        Ok(broken)
    }

    /// Gives back every lock of instances that are dead, and forgets those. Takes one lease, the longest of those that
    /// it watches. Returns what was given back.
    ///
    /// # Errors
    /// As [`LockRepository::list`].
    pub async fn reap(&self) -> Result<Vec<Lock>> {
        let mut reaped = Vec::new();
        let longest = self.inner.reap_pass(&mut reaped).await?;
        self.inner.clock().sleep(longest).await;
        self.inner.reap_pass(&mut reaped).await?;
        Ok(reaped)
    }

    /// Deletes the documents of locks that have been free for `idle`, by the wall clock. Tokens grow on all the same.
    /// Returns how many.
    ///
    /// # Errors
    /// As [`LockRepository::list`] and [`LockRepository::delete`].
    pub async fn purge(&self, idle: Duration) -> Result<usize> {
        let before = wall_ms(self.inner.repository.domain())
            .saturating_sub(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        let mut purged = 0;
        for lock in self.inner.repository.list().await? {
            if lock.holder.is_none() && lock.released_ms.is_none_or(|at| at <= before) {
                purged += usize::from(self.inner.repository.delete(&lock.name()).await?);
            }
        }
        Ok(purged)
    }

    /// Grants nothing any more, takes every guard of this service for lost at once, gives their locks back, and ends its
    /// tasks; waits for that at most for `deadline`. Returns whether all of it was done: what was not is taken by
    /// others after a lease. Either way whoever still works under a guard is refused from now on. Shut the service down
    /// before its domain.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        let inner = &self.inner;
        inner.closing.cancel();
        inner.tasks.close();
        // Nobody renews from here on, so nobody may rest on a lock beyond its lease, however long the rest takes.
        inner.lose_all(Loss::Closed);
        let drained = async {
            inner.tasks.wait().await;
            inner.settle_strays().await;
            let clean = inner.strays.lock().is_empty();
            // With strays left the instance has to be found dead.
            clean && inner.instances.leave().await.is_ok()
        };
        tokio::select! {
            biased;
            clean = drained => clean,
            () = inner.clock().sleep(deadline) => false,
        }
    }
}
