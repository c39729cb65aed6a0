//! A grant of a lock in the memory of this process.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;

use crate::error::{LockError, Loss, Result};
use crate::records::model::LockName;
use crate::records::repository::Leaving;

/// A grant that this process holds or held.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) name: LockName,
    pub(crate) token: u64,
    pub(crate) id: String,
    /// The time of the grant, in milliseconds since the Unix epoch.
    pub(crate) since_ms: u64,
    /// Whether the previous holder did not release the lock.
    pub(crate) abandoned: bool,
    /// Cancelled when the grant no longer holds the lock.
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

    /// How a guard that is released now leaves the lock.
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
