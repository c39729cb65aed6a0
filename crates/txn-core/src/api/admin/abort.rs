//! The abort of a transaction by an operator.

use super::Admin;
use super::report::{AbortReport, TransactionState};
use crate::engine::attempt_error::AttemptError;
use crate::engine::holders::verdict::Decided;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::Result;
use crate::event::Event;
use txn_protocol::ids::AttemptId;

impl Admin<'_> {
    /// Aborts a transaction that is not committed, even if its owner lives.
    ///
    /// The abort is a wound by hand: the owner receives a conflict, and `Domain::run` tries again
    /// with another attempt. The locks of the attempt are void afterwards. The next transaction
    /// overwrites them, or a janitor pass removes them. A committed transaction stays committed.
    /// A dry run writes nothing.
    ///
    /// The attempt needs no record. So a mistyped tid leaves an `aborted` record, which is dropped
    /// with its day. An abort does not undo a commit of one document, which may have no record.
    /// [`Admin::transaction`] tells whether a record or a lock exists.
    ///
    /// The abort of a group's tid concerns all its members. A transaction of `Domain::begin` is not
    /// run again.
    ///
    /// ```
    /// # use txn_core::{AttemptId, Domain, Error};
    /// # async fn stop(domain: &Domain, tid: AttemptId) -> Result<(), Error> {
    /// let would_do = domain.admin().abort(tid, "stuck since noon", true).await?;
    /// println!("{would_do:?}");
    /// domain.admin().abort(tid, "stuck since noon", false).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the record kept changing until the
    ///   deadline.
    /// - [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the record cannot be read, or the day
    ///   of the tid is far in the future.
    /// - The errors of the store.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the abort may happen or not.
    pub async fn abort(self, tid: AttemptId, why: &str, dry_run: bool) -> Result<AbortReport> {
        let abort = abort(self, tid, why, dry_run);
        let wait = self.engine.context.config.timeout;
        self.engine.context.within(wait, abort).await.map_err(AttemptError::into_error)
    }
}

async fn abort(
    admin: Admin<'_>,
    tid: AttemptId,
    why: &str,
    dry_run: bool,
) -> Result<AbortReport, AttemptError> {
    let engine = admin.engine;
    let deadline = engine.context.deadline(engine.context.config.timeout);
    let mut backoff = engine.context.backoff();
    let mut before = None;
    loop {
        let found = engine.table.record_of(tid, ReadPreference::Primary, &deadline).await?;
        let recorded = found.record.is_some();
        let state = TransactionState::from(found.state());
        let before = *before.get_or_insert(state);
        let report = |after, aborts| AbortReport { tid, before, after, dry_run, aborts };
        let undecided = matches!(state, TransactionState::NoRecord | TransactionState::Pending);
        if !undecided || dry_run {
            return Ok(report(state, undecided));
        }
        let why = format!("aborted by an operator: {why}");
        match Box::pin(engine.verdicts.decide(tid, found, &why, &deadline)).await? {
            Some(Decided::Aborted) => {
                engine.context.emit(&Event::AbortedByOperator { tid, recorded });
                return Ok(report(TransactionState::Aborted, true));
            }
            Some(Decided::Committed { .. }) => {
                return Ok(report(TransactionState::Committed, false));
            }
            // The owner wrote its record meanwhile.
            None => {
                let changing = WaitReason::Changing(engine.table.record_key(tid));
                engine.context.pause(&deadline, &mut backoff, changing).await?;
            }
        }
    }
}
