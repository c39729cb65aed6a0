//! A lock that is held: what its holder knows of it, and the check by which effects rest on it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use txn_core::{Domain, Transaction, TransactionFn};

use crate::error::{LockError, Loss, Result};
use crate::grant::Grant;
use crate::inner::Inner;
use crate::model::LockName;
use crate::queue::Turn;
use crate::repository::LockRepository;

/// What a holder knows of its lock; cheap to clone. It outlives the [`Guard`], and says then that the lock is not held.
#[derive(Clone, Debug)]
pub struct Held {
    pub(crate) grant: Arc<Grant>,
    pub(crate) inner: Arc<Inner>,
}

impl Held {
    /// The lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.grant.name
    }

    /// The fencing token: larger than that of every earlier grant of this lock, whatever became of that.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.grant.token
    }

    /// Whether the holder before did not give the lock back: its process died, its lease ran out, or the lock was broken. What
    /// the lock protects may then be half done. The lock counts as given back again once this guard is.
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.grant.abandoned
    }

    /// When the lock was granted, in milliseconds since the Unix epoch, by the wall clock of this process.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.grant.since_ms
    }

    /// Whether the lock is held no longer, as far as this process can know. The clock of this process is asked, so a process
    /// that was paused finds out as soon as it asks. On Linux and Android the time in which the machine was suspended counts.
    /// Other systems have no clock that tells it: there `false` after a suspension may be wrong until the next heartbeat.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.lose_if_expired();
        self.grant.lost.is_cancelled()
    }

    /// Fails if the lock is held no longer.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<()> {
        self.inner.lose_if_expired();
        self.grant.check()
    }

    /// Returns once the lock is held no longer. Cancel safe.
    pub async fn lost(&self) {
        self.grant.lost.cancelled().await;
    }

    /// Is cancelled once the lock is held no longer.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.grant.lost.child_token()
    }

    /// The check by which effects in documents of the same domain rest on this lock.
    #[must_use]
    pub fn fenced(&self) -> Fenced {
        Fenced { grant: self.grant.clone(), repository: self.inner.repository.clone() }
    }
}

/// A lock that is held, until it is unlocked or dropped. Dropped, it is given back in the background.
#[derive(Debug)]
#[must_use = "a lock is given back when its guard is dropped"]
pub struct Guard {
    held: Held,
    /// The place of this process in its own queue, kept until the lock is given back.
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

    /// What may be handed to those who work under the lock.
    #[must_use]
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it was held no longer: what was done under it may have met somebody else's.
    /// [`LockError::Engine`] if the store did not do it: it is tried again in the background for as long as the
    /// service lives.
    ///
    /// # Cancel safety
    /// Dropped, it is given back in the background.
    pub async fn unlock(mut self) -> Result<()> {
        let lost = self.held.check();
        let given_back = self.held.inner.give_back(&self.held.grant).await;
        // Whoever waits in this process is next.
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
        // Taken: it was given back.
        let Some(turn) = self.turn.take() else { return };
        self.held.inner.give_back_later(self.held.grant.clone(), turn);
    }
}

/// Lets effects happen only while a grant holds its lock: the check is a read of the transaction that makes the
/// effects, so that both commit together or not at all. Whoever takes the lock over, breaks it or gets it next makes
/// the check fail, also if the holder was paused in between and knows nothing of it.
#[derive(Clone, Debug)]
pub struct Fenced {
    grant: Arc<Grant>,
    repository: LockRepository,
}

impl Fenced {
    /// The token that is checked, for effects elsewhere: let whoever makes them keep the largest token that it saw,
    /// and refuse smaller ones.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.grant.token
    }

    /// Checks in a transaction that the lock is still held by this grant, and that this process did not take it for lost.
    /// If the lock is not held when the transaction commits, nothing is written.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it is held no longer, which the closure has to pass on; otherwise as
    /// [`Transaction::get`].
    pub async fn check(&self, tx: &Transaction) -> Result<()> {
        self.grant.check()?;
        match self.repository.holds(tx, &self.grant.name, &self.grant.id).await? {
            true => Ok(()),
            false => Err(self.grant.error(Loss::Taken)),
        }
    }

    /// Runs a transaction of the lock's domain whose effects happen only if the lock is still held when it commits.
    ///
    /// # Errors
    /// [`LockError::Lost`], the closure's own error, or one of the engine.
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
