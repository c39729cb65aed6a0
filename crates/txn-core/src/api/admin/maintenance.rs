//! Janitor passes and inspections on demand, for operators.

use super::Admin;
use crate::engine::admin::janitor::JanitorReport;
use crate::engine::attempt_error::AttemptError;
use crate::error::Result;

impl Admin<'_> {
    /// Runs one complete pass of the janitor.
    ///
    /// The pass recovers transactions that stay unchanged for their lease, and drops old
    /// partitions. Then the pass reports the remaining locks, records and damage. A pass that finds
    /// anything takes at least one lease. The pass reports a collection that cannot be scanned, and
    /// scans the other collections.
    ///
    /// # Errors
    /// The errors of the store for the domain document.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the completed steps remain. Each step is complete by
    /// itself.
    pub async fn janitor_pass(self) -> Result<JanitorReport> {
        self.engine.janitor.complete_pass().await.map_err(AttemptError::into_error)
    }

    /// Reports locks, open records and lost parts, and changes nothing.
    ///
    /// The report includes the locks and records of running transactions.
    ///
    /// # Errors
    /// The errors of the store for the domain document.
    pub async fn inspect(self) -> Result<JanitorReport> {
        self.engine.janitor.inspect().await.map_err(AttemptError::into_error)
    }
}
