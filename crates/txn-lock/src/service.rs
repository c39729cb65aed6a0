//! The lock service: the API for applications.

use std::sync::Arc;
use std::time::Duration;

use txn_core::Domain;

use crate::config::LockConfig;
use crate::error::{LockError, Loss, Result, Timeout};
use crate::granting::attempt::{Ask, Attempt, Last, Tried};
use crate::holding::guard::{Guard, Held};
use crate::holding::renew;
use crate::inner::Inner;
use crate::instance::wall_ms;
use crate::records::model::{Holder, Lock, LockName};
use crate::records::repository::{Known, LockRepository};

/// The locks of one domain. Cheap to clone.
///
/// A service is one instance, by which other processes see whether this process lives. A lock is a
/// document of the collection `<domain>-locks`. The fencing token of a lock grows with every grant.
/// While the service holds locks, the instance writes a heartbeat three times per lease. Other
/// processes take the locks over after one lease without a heartbeat, by their own clocks.
#[derive(Clone, Debug)]
pub struct LockService {
    inner: Arc<Inner>,
}

impl LockService {
    /// Opens the locks of a domain.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`], or an error of the engine.
    pub async fn open(domain: &Domain, config: LockConfig) -> Result<Self> {
        let inner = Inner::open(domain, config).await?;
        renew::start(&inner);
        Ok(Self { inner })
    }

    /// The lock documents of this service.
    #[must_use]
    pub fn repository(&self) -> &LockRepository {
        &self.inner.repository
    }

    /// The id of this instance, as in [`Holder::instance`].
    #[must_use]
    pub fn instance(&self) -> String {
        self.inner.instances.id()
    }

    /// Takes a lock if it is free and not reserved, without waiting.
    ///
    /// A free lock is reserved while another process waits for it. The second call, one lease after
    /// the first, detects a dead holder.
    ///
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::NewerFormat`], [`LockError::Closed`], or an error
    /// of the engine. After an error the caller does not hold the lock.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the caller does not hold the lock. A background task
    /// releases a grant that the store may contain.
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

    /// Takes a lock, and waits for it for at most `timeout`.
    ///
    /// After a timeout the call takes up to one more pause, to find the holder. Callers of this
    /// process receive the lock in the order of arrival, and wake at its release. A caller polls a
    /// holder in another process with growing pauses, and takes the lock over from a dead holder.
    ///
    /// While another process waits, one process receives at most 8 consecutive grants. The last of
    /// them starts within [`LockConfig::longest_pause`] after the first.
    ///
    /// # Errors
    /// [`LockError::Timeout`] with the holder and the time of its grant; [`LockError::Busy`],
    /// [`LockError::InvalidName`], [`LockError::NewerFormat`], [`LockError::Closed`]; or an error
    /// of the engine that is neither transient nor unknown.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the caller does not hold the lock, and loses its position
    /// in the queue. A background task releases a grant that the store may contain.
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
                    // An earlier caller in the queue may have seen the holder: read the lock once
                    // more.
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

    /// Runs `closure` under a lock, and releases the lock afterwards.
    ///
    /// The call waits for the lock for at most `timeout`. After an error of the closure the call
    /// releases the lock, too. The closure receives a handle that reports a loss of the lock.
    ///
    /// # Errors
    /// As [`LockService::lock`], and then the closure did not run. The error of the closure.
    /// [`LockError::Lost`] if the closure succeeded and the lock was lost before its release.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the closure is dropped, and a background task releases
    /// the lock.
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
            // If the store did not release the lock, the background task retries.
            (done, _) => done,
        }
    }

    /// Lists all held locks, by name. Separate reads are no snapshot.
    ///
    /// # Errors
    /// As [`LockRepository::list`].
    pub async fn list(&self) -> Result<Vec<Lock>> {
        let locks = self.inner.repository.list().await?;
        Ok(locks.into_iter().filter(|lock| lock.holder.is_some()).collect())
    }

    /// As [`LockService::list`]; names locks of a newer format instead of failing.
    ///
    /// # Errors
    /// As [`LockRepository::list`], except [`LockError::NewerFormat`].
    pub async fn list_known(&self) -> Result<Known> {
        let mut known = self.inner.repository.list_known().await?;
        known.locks.retain(|lock| lock.holder.is_some());
        Ok(known)
    }

    /// Whether the holder of a lock is dead. The first call begins the watch.
    ///
    /// A holder is dead after one lease without a heartbeat, by the clock of this process. A caller
    /// that polls this method can take the lock with [`LockService::try_lock`] one lease after the
    /// death of the holder.
    ///
    /// # Errors
    /// An error of the engine.
    pub async fn is_dead(&self, holder: &Holder) -> Result<bool> {
        if holder.instance == self.inner.instances.id() {
            return Ok(false);
        }
        Ok(self.inner.look(holder).await?.is_some())
    }

    /// Takes a lock from its holder by force. Returns the previous holder.
    ///
    /// The guard of the holder reports the loss within a third of a lease.
    /// [`Fenced`](crate::Fenced) checks of this grant fail at once. Returns `None` if the lock was
    /// free.
    ///
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::NewerFormat`], or an error of the engine.
    pub async fn break_lock(&self, category: &str, id: &str) -> Result<Option<Holder>> {
        let name = LockName::new(category, id)?;
        let broken = self.inner.repository.take_away(&name, None).await?;
        if let Some(holder) = &broken {
            let own = self.inner.held.lock().remove(&holder.grant);
            own.iter().for_each(|grant| grant.lose(Loss::Taken));
        }
        Ok(broken)
    }

    /// Releases all locks of dead instances, and removes these instances.
    ///
    /// The call takes the longest lease of the instances that it watches. Returns the released
    /// locks.
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

    /// Deletes the documents of locks that have been free for `idle`.
    ///
    /// The wall clock decides. Tokens continue to grow. Returns the number of deleted documents.
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

    /// Stops the service: guards are lost, locks released, tasks ended.
    ///
    /// The service grants no lock afterwards. The call waits for at most `deadline`. Returns
    /// whether all locks are released; other processes take the remaining locks over after a lease.
    /// Work under a guard fails from now on in either case. Shut the service down before its
    /// domain.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        let inner = &self.inner;
        inner.closing.cancel();
        inner.tasks.close();
        // No heartbeat follows, so no guard may outlive its lease, however long the rest takes.
        inner.lose_all(Loss::Closed);
        let drained = async {
            inner.tasks.wait().await;
            inner.settle_unreleased().await;
            let clean = inner.unreleased.lock().is_empty();
            // With unreleased grants the document must stay, so that other processes find the
            // instance dead.
            clean && inner.instances.leave().await.is_ok()
        };
        tokio::select! {
            biased;
            clean = drained => clean,
            () = inner.clock().sleep(deadline) => false,
        }
    }
}
