//! Janitor passes and inspections on demand, for operators.

use super::Admin;
use super::report::Fault;
use super::scan::{FaultList, domain_document};
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
    /// The report includes the locks and records of running transactions. Each of its lists has at
    /// most 10,000 entries ([`JanitorReport::truncated`]).
    ///
    /// # Errors
    /// The errors of the store for the domain document.
    pub async fn inspect(self) -> Result<JanitorReport> {
        self.engine.janitor.inspect().await.map_err(AttemptError::into_error)
    }

    /// Reports lost and recreated parts of the domain, and changes nothing.
    ///
    /// Unlike [`Admin::inspect`], the call scans no documents. The list has at most `limit` faults.
    ///
    /// # Errors
    /// The errors of the store for the domain document.
    pub async fn lost_parts(self, limit: usize) -> Result<Vec<Fault>> {
        let engine = self.engine;
        let document = domain_document(engine).await?;
        let lost = engine.janitor.lost_parts(&document).await;
        let mut faults = FaultList::new(limit);
        for (key, what) in lost.damaged {
            faults.add(Fault { subject: key.to_string(), message: what, damaged: true });
        }
        for (name, what) in lost.unreachable {
            faults.add(Fault { subject: name, message: what, damaged: false });
        }
        Ok(faults.into_vec())
    }

    /// Creates the partitions of today and tomorrow, if they are missing.
    ///
    /// Each process of the domain does the same when it opens the domain, and in each pass of its
    /// janitor. The error of this call tells why a partition is still missing.
    ///
    /// # Errors
    /// - [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if the server does not create
    ///   the partition, or this process's clock is ahead of the server's.
    /// - The errors of the store.
    pub async fn prepare_days(self) -> Result<()> {
        let engine = self.engine;
        engine.time.confirm_not_ahead().await?;
        let today = engine.time.today();
        for day in [today, today.plus(1)] {
            let deadline = engine.context.deadline(engine.context.config.timeout);
            let made = engine.table.ensure_partition(day, &deadline).await;
            made.map_err(AttemptError::into_error)?;
        }
        Ok(())
    }
}
