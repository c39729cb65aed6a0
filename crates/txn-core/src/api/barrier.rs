//! The barrier: waits until everything that was acknowledged before it is applied, and searches see it.

use std::time::Duration;

use crate::api::domain::Domain;
use crate::engine::attempt_error::AttemptError;
use crate::error::Result;

impl Domain {
    /// Waits until every transaction of the domain that was acknowledged before the call, by whichever process, is
    /// applied, and refreshes the domain's collections: plain reads and searches see all of it from then on. For
    /// reports, batch jobs, and tests that search.
    ///
    /// It holds nobody up: transactions that are acknowledged later may be seen or not. What a process that died left
    /// committed is applied here, after its lease. Costs a refresh and a scan of each day of the transaction table,
    /// and a refresh of each collection.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something committed is not applied when `wait` (from now, within the bound of
    /// [`Config::deadline`](crate::Config::deadline)) has passed; [`ErrorKind::Damaged`] if it cannot be applied any
    /// more; [`ErrorKind::Unavailable`] if the store does not answer; [`ErrorKind::Misconfigured`] if a collection of
    /// the domain is missing.
    ///
    /// # Cancel safety
    /// Dropped, nothing is left half done.
    ///
    /// [`ErrorKind::Conflict`]: crate::ErrorKind::Conflict
    /// [`ErrorKind::Damaged`]: crate::ErrorKind::Damaged
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    pub async fn barrier(&self, wait: Duration) -> Result<()> {
        self.engine.config.check_wait(wait)?;
        let deadline = self.engine.deadline(wait);
        let barrier = self.engine.barrier(&deadline);
        self.engine.within(wait, barrier).await.map_err(AttemptError::into_error)
    }
}
