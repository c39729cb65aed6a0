//! One grant of a lock, as this process holds it.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;

use crate::error::{LockError, Loss, Result};
use crate::model::LockName;
use crate::repository::Leaving;

/// One grant of a lock.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) name: LockName,
    pub(crate) token: u64,
    pub(crate) id: String,
    /// When it was granted, in milliseconds since the Unix epoch.
    pub(crate) since_ms: u64,
    /// Whether the holder before did not give the lock back.
    pub(crate) abandoned: bool,
    /// Cancelled once it is held no longer.
    pub(crate) lost: CancellationToken,
    why: OnceLock<Loss>,
}

impl Grant {
    pub(crate) fn new(
        name: LockName,
        token: u64,
        id: String,
        since_ms: u64,
        abandoned: bool,
    ) -> Self {
        let (lost, why) = (CancellationToken::new(), OnceLock::new());
        Self { name, token, id, since_ms, abandoned, lost, why }
    }

    pub(crate) fn lose(&self, why: Loss) {
        let _ = self.why.set(why);
        self.lost.cancel();
    }

    /// How a guard that is given back now leaves the lock.
    pub(crate) fn leaving(&self) -> Leaving {
        if self.why.get().is_none() { Leaving::Done } else { Leaving::Lost }
    }

    pub(crate) fn error(&self, why: Loss) -> LockError {
        LockError::Lost { lock: self.name.clone(), token: self.token, why }
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.why.get().map_or(Ok(()), |why| Err(self.error(*why)))
    }
}
