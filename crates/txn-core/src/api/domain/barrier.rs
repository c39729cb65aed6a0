//! `Domain::barrier`: waits for the apply of all earlier commits.
//!
//! Plain reads and searches see these commits afterwards.

use std::time::Duration;

use crate::api::domain::Domain;
use crate::engine::admin::barrier::BarrierReport;
use crate::engine::attempt_error::AttemptError;
use crate::error::Result;

impl Domain {
    /// Waits until every earlier commit is applied, and refreshes the collections.
    ///
    /// After the barrier, plain reads and searches see every transaction of the domain that any
    /// process acknowledged before the call. The barrier is for reports, batch jobs, and tests that
    /// search. A transaction that is acknowledged later may be visible or not. A barrier delays no
    /// transaction.
    ///
    /// The barrier rolls forward the commits of a dead process, after the lease of each. The cost
    /// is a refresh and a scan of each day of the transaction table, and a refresh of each
    /// collection.
    ///
    /// A damaged document does not fail the barrier. The report lists each committed write that no
    /// process can apply, with the document that an operator must repair. Searches see all other
    /// writes. Such a write delays the barrier by up to one and a half leases.
    /// [`BarrierReport::into_result`] turns such a report into an error.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use txn_core::{Domain, Error};
    /// # async fn report(domain: &Domain) -> Result<(), Error> {
    /// // Plain searches then see every transaction that was acknowledged before the call.
    /// domain.barrier(Duration::from_secs(5)).await?.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Conflict`] if a commit that can be applied is not applied after `wait`. The
    ///   bound of [`Config::with_timeout`](crate::Config::with_timeout) applies to `wait`, too.
    /// - [`ErrorKind::Unavailable`] if the store does not answer.
    /// - [`ErrorKind::Damaged`] or [`ErrorKind::Misconfigured`] if a part of the transaction table
    ///   or a collection is missing.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing half done.
    ///
    /// [`ErrorKind::Conflict`]: crate::ErrorKind::Conflict
    /// [`ErrorKind::Damaged`]: crate::ErrorKind::Damaged
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    pub async fn barrier(&self, wait: Duration) -> Result<BarrierReport> {
        self.engine.context.config.check_wait(wait)?;
        let deadline = self.engine.context.deadline(wait);
        let barrier = self.engine.barrier.wait(&deadline);
        self.engine.context.within(wait, barrier).await.map_err(AttemptError::into_error)
    }
}
