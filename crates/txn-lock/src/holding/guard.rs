//! Guards of locks, and transactions that depend on a lock.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use txn_core::{Domain, Transaction, TransactionFn};

use crate::error::{LockError, Loss, Result};
use crate::granting::grant::Grant;
use crate::granting::queue::Turn;
use crate::inner::Inner;
use crate::records::model::LockName;
use crate::records::repository::LockRepository;

/// The state of a lock that this process holds or held. Cheap to clone.
///
/// The value outlives the [`Guard`], and then reports the lock as lost.
#[derive(Clone, Debug)]
pub struct Held {
    pub(crate) grant: Arc<Grant>,
    pub(crate) inner: Arc<Inner>,
}

impl Held {
    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.grant.name
    }

    /// The fencing token: larger than all earlier tokens of this lock.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.grant.token
    }

    /// Whether the previous holder did not release the lock.
    ///
    /// The process of this holder died, its lease expired, or the lock was broken. Data under the
    /// lock may be half changed. A release by this guard clears the flag.
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.grant.abandoned
    }

    /// The time of the grant, in milliseconds since the Unix epoch.
    ///
    /// The wall clock of this process supplies the time.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.grant.since_ms
    }

    /// Whether the lock is lost, as far as this process can know.
    ///
    /// The call reads the clock of this process, so a paused process detects an expired lease at
    /// its next call. On Linux and Android the clock includes the time in which the machine was
    /// suspended. Other systems have no such clock: after a suspension, `false` may be wrong until
    /// the next heartbeat.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.lose_if_expired();
        self.grant.lost.is_cancelled()
    }

    /// Fails if the lock is lost.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<()> {
        self.inner.lose_if_expired();
        self.grant.check()
    }

    /// Waits until the lock is lost or released. Cancel safe.
    pub async fn lost(&self) {
        self.grant.lost.cancelled().await;
    }

    /// A token that is cancelled when the lock is lost or released.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.grant.lost.child_token()
    }

    /// Returns a check that makes transactions depend on this lock.
    ///
    /// The transactions must be in the domain of the lock.
    #[must_use]
    pub fn fenced(&self) -> Fenced {
        Fenced { grant: self.grant.clone(), repository: self.inner.repository.clone() }
    }
}

/// A lock that this process holds. A dropped guard releases the lock in the background.
#[derive(Debug)]
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard {
    held: Held,
    /// The position in the local queue, kept until the release.
    turn: Option<Turn>,
}

impl std::ops::Deref for Guard {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl Guard {
    pub(crate) fn new(held: Held, turn: Turn) -> Self {
        Self { held, turn: Some(turn) }
    }

    /// A handle for the code that works under the lock.
    #[must_use]
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock was already lost: the work under the lock may have
    /// overlapped with the work of another holder. [`LockError::Engine`] if the store did not
    /// release the lock: the service retries in the background while the service lives.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the release continues in the background.
    pub async fn unlock(mut self) -> Result<()> {
        let lost = self.held.check();
        let given_back = self.held.inner.give_back(&self.held.grant).await;
        // Wakes the next caller of this process.
        self.turn.take();
        lost?;
        match given_back? {
            true => Ok(()),
            false => Err(self.held.grant.error(Loss::Taken)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // No turn: `unlock` has already released the lock.
        let Some(turn) = self.turn.take() else { return };
        self.held.inner.give_back_later(self.held.grant.clone(), turn);
    }
}

/// Lets effects happen only while a grant holds its lock.
///
/// The check is a read in the transaction that makes the effects, so the check and the effects
/// commit together. The check fails after another process took the lock over, broke it, or received
/// the next grant. A holder that was paused and knows nothing of its loss fails, too.
#[derive(Clone, Debug)]
pub struct Fenced {
    grant: Arc<Grant>,
    repository: LockRepository,
}

impl Fenced {
    /// The fencing token, for effects outside of the domain.
    ///
    /// The receiver of such effects must keep the largest token that it saw, and refuse smaller
    /// tokens.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.grant.token
    }

    /// Checks in a transaction that this grant still holds the lock.
    ///
    /// If the grant does not hold the lock at the commit, the transaction writes nothing.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock is lost; the closure must return this error. Otherwise as
    /// [`Transaction::get`].
    pub async fn check(&self, tx: &Transaction) -> Result<()> {
        self.grant.check()?;
        match self.repository.holds(tx, &self.grant.name, &self.grant.id).await? {
            true => Ok(()),
            false => Err(self.grant.error(Loss::Taken)),
        }
    }

    /// Runs a transaction that commits only under the lock.
    ///
    /// # Errors
    /// [`LockError::Lost`], the error of the closure, or an error of the engine.
    pub async fn transact<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        T: Send,
        F: for<'t> TransactionFn<'t, T, E> + Sync,
        E: From<LockError> + From<txn_core::Error> + Send,
    {
        let domain: &Domain = self.repository.domain();
        domain
            .transact(async |tx| {
                self.check(tx).await?;
                closure(tx).await
            })
            .await
    }
}
