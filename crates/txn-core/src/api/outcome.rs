//! What became of a transaction, by its tid.

use crate::api::domain::Domain;
use crate::engine::attempt_error::AttemptError;
use crate::engine::outcome::TransactionOutcome;
use crate::error::Result;
use txn_protocol::ids::AttemptId;

impl Domain {
    /// What became of a transaction, by the tid of its attempt. The answer is final: a transaction that is undecided
    /// is watched for one lease, and aborted if it shows no sign of life.
    ///
    /// A one-document transaction leaves no record: do not ask for one (its errors carry no tid).
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if it is still under way when the deadline passes;
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not answer.
    pub async fn outcome(&self, tid: AttemptId) -> Result<TransactionOutcome> {
        let engine = &self.engine;
        let deadline = engine.deadline(engine.config.deadline);
        engine.outcome(tid, &deadline).await.map_err(AttemptError::into_error)
    }
}
