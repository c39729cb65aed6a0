//! The barrier: waits until every earlier commit is applied, and searches see all of them.

use std::time::Duration;

use crate::api::domain::Domain;
use crate::engine::attempt_error::AttemptError;
use crate::engine::barrier::BarrierReport;
use crate::error::Result;

impl Domain {
    /// Waits until every earlier commit is applied, and refreshes the collections.
    ///
    /// After it, plain reads and searches see every transaction of the domain that was acknowledged
    /// before the call, by any process. For reports, batch jobs, and tests that search. A
    /// transaction that is acknowledged later may be seen or not: a barrier delays no transaction.
    ///
    /// The barrier rolls forward what a dead process committed, after its lease. It costs a refresh
    /// and a scan of each day of the transaction table, and a refresh of each collection.
    ///
    /// A damaged document does not fail the barrier. The report lists each committed write that no
    /// process can apply, with the document that a person must mend; searches see everything else.
    /// Such a write costs up to one and a half leases. A caller that cannot do with less than all
    /// takes [`BarrierReport::into_result`].
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a commit that can be applied is not applied when `wait` (from
    /// now, within the bound of [`Config::deadline`](crate::Config::deadline)) has passed;
    /// [`ErrorKind::Unavailable`] if the store does not answer; [`ErrorKind::Damaged`] or
    /// [`ErrorKind::Misconfigured`] if a part of the transaction table or a collection is missing.
    ///
    /// # Cancel safety
    /// Dropped, nothing is left half done.
    ///
    /// [`ErrorKind::Conflict`]: crate::ErrorKind::Conflict
    /// [`ErrorKind::Damaged`]: crate::ErrorKind::Damaged
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    pub async fn barrier(&self, wait: Duration) -> Result<BarrierReport> {
        self.engine.config.check_wait(wait)?;
        let deadline = self.engine.deadline(wait);
        let barrier = self.engine.barrier(&deadline);
        self.engine.within(wait, barrier).await.map_err(AttemptError::into_error)
    }
}
