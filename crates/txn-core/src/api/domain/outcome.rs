//! The final outcome of a transaction, by the tid of its attempt.

use crate::api::domain::Domain;
use crate::engine::attempt_error::AttemptError;
use crate::engine::holders::transaction_outcome::TransactionOutcome;
use crate::error::Result;
use txn_protocol::ids::AttemptId;

impl Domain {
    /// Returns the final outcome of a transaction, by its tid.
    ///
    /// If the transaction is undecided, the call watches the transaction for one lease. Without a
    /// sign of life the call then aborts the transaction.
    ///
    /// Ask only with a tid of a [`Receipt`](crate::Receipt) or of an error. A put of one document
    /// may leave no record, and then has no such tid. For another tid of such a transaction the
    /// call would answer [`TransactionOutcome::Aborted`], although the write is there.
    ///
    /// ```
    /// # use txn_core::{Domain, Error, ErrorKind, TransactionOutcome};
    /// # async fn ask(domain: &Domain, error: &Error) -> Result<(), Error> {
    /// if let (ErrorKind::Unknown, Some(tid)) = (error.kind(), error.tid()) {
    ///     match domain.outcome(tid).await? {
    ///         TransactionOutcome::Committed { .. } => println!("committed"),
    ///         other => println!("{other:?}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the transaction still runs at the
    ///   deadline.
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not answer.
    pub async fn outcome(&self, tid: AttemptId) -> Result<TransactionOutcome> {
        let engine = &self.engine;
        let deadline = engine.context.deadline(engine.context.config.timeout);
        engine.verdicts.outcome(tid, &deadline).await.map_err(AttemptError::into_error)
    }
}
