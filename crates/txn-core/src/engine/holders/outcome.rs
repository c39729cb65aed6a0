//! The final outcome of a transaction, by the tid of its attempt.

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::holders::failure_detector::LookedAt;
use crate::engine::holders::transaction_outcome::TransactionOutcome;
use crate::engine::holders::verdict::{Decided, Verdicts};
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::event::Event;
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::conflict::{Conflict, HolderState, Requester, conflict};

impl Verdicts {
    /// See [`Domain::outcome`](crate::Domain::outcome).
    pub(crate) async fn outcome(
        &self,
        tid: AttemptId,
        deadline: &Deadline,
    ) -> Result<TransactionOutcome, AttemptError> {
        let outcome = self.find_outcome(tid, deadline).await?;
        self.context.emit(&Event::OutcomeKnown { tid, outcome });
        Ok(outcome)
    }

    async fn find_outcome(
        &self,
        tid: AttemptId,
        deadline: &Deadline,
    ) -> Result<TransactionOutcome, AttemptError> {
        let key = self.table.record_key(tid);
        loop {
            let asked = self.context.now();
            let found = self.table.record_of(tid, ReadPreference::Primary, deadline).await?;
            let at = LookedAt { asked, answered: self.context.now() };
            let label = found.record.as_ref().and_then(|record| record.label.clone());
            if found.state() == HolderState::Gone {
                return Ok(TransactionOutcome::Forgotten);
            }
            let lease = self.context.config.lease_of(tid.attempt());
            let dead = !self.live_attempts.is_live(tid)
                && self.detector.note_sign(tid, &key, found.version(), lease, at);
            if conflict(&self.context.rules, Requester::NonPreempting, tid, found.state(), dead)
                == Conflict::Resolve
            {
                let why = "its outcome was asked for, and it showed no sign of life for one lease";
                let dead_at = Some(found.standing);
                match Box::pin(self.decide_since(dead_at, tid, found, why, deadline)).await? {
                    Some(Decided::Aborted) => return Ok(TransactionOutcome::Aborted),
                    Some(Decided::Committed { record, .. }) => {
                        let commit_version = record.commit_version.ok_or_else(|| {
                            Error::damaged("the committed record has no commit version")
                                .in_transaction(tid)
                        })?;
                        return Ok(TransactionOutcome::Committed { commit_version });
                    }
                    None => {}
                }
            }
            let others = WaitReason::Others { key: key.clone(), holder: tid, label };
            deadline.pause(&*self.context.config.clock, lease / 4, others).await?;
        }
    }
}
