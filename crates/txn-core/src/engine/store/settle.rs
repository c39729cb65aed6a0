//! The settlement loop: writes until an acknowledged write proves the result.
//!
//! A machine names the next write for the document that the last read showed. The loop sends the
//! write, and reads again after each write without an acknowledgement. The rule behind the loop:
//! only an acknowledged conditional write is knowledge.

use txn_protocol::machines::settle::{Answer, Condition, Machine, Settle};

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_store::{Key, Outcome, Source, Version, Write, WriteOp};

/// A target of the settlement loop: a key with its requests.
pub(crate) trait SettleTarget: Sync {
    /// The result of a read.
    type Found: Send + Sync;
    /// The part of the result that the machine needs.
    type Seen;

    fn seen(found: &Self::Found) -> &Self::Seen;

    /// The stored bytes, for a touch.
    fn source(found: &Self::Found) -> Option<Source>;

    fn store(&self) -> &StoreAccess;

    fn key(&self) -> Key;

    /// Sends one write.
    fn write(
        &self,
        op: &WriteOp,
        _: &Deadline,
    ) -> impl Future<Output = Result<Outcome, AttemptError>> + Send {
        let write = Write::new(self.key(), op.clone());
        async move { Ok(perhaps_lagging(self.store().write_one(write).await)) }
    }

    fn look(
        &self,
        deadline: &Deadline,
    ) -> impl Future<Output = Result<Self::Found, AttemptError>> + Send;
}

/// A proven fact, with the read behind it.
#[derive(Debug)]
pub(crate) struct Settled<P, F> {
    pub(crate) proven: P,
    /// The version of the acknowledged write; `None` if no write was needed.
    pub(crate) written: Option<Version>,
    /// The last read before the write.
    pub(crate) found: F,
}

/// Why the loop did not settle the document.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) because: UnsettledCause,
    /// Whether one of the writes may have happened, or may still happen.
    pub(crate) in_doubt: bool,
    key: Key,
}

#[derive(Debug)]
pub(crate) enum UnsettledCause {
    /// No time is left, or the document cannot be read.
    Stopped(AttemptError),
    /// The store refuses the write for good.
    Refused(Outcome),
    /// No write can settle the document.
    Stuck,
}

impl Unsettled {
    /// The error for a caller that was `doing` this.
    pub(crate) fn while_doing(self, doing: &str) -> AttemptError {
        match self.because {
            UnsettledCause::Stopped(error) => error,
            UnsettledCause::Refused(outcome) => {
                Error::from_refused(&outcome, &self.key, doing).into()
            }
            UnsettledCause::Stuck => {
                let message = format!("cannot {doing}: no write can settle the document");
                Error::damaged(message).at(&self.key).into()
            }
        }
    }
}

impl StoreAccess {
    /// Writes until an acknowledged write proves something.
    ///
    /// The machine chooses each write, starting from `found`. `content` supplies the bytes, except
    /// for touches. A dropped future leaves a write in doubt.
    pub(crate) async fn settle<L: SettleTarget, M: Machine<Seen = L::Seen> + Sync>(
        &self,
        place: &L,
        machine: &M,
        mut found: L::Found,
        content: impl Fn(&L::Found) -> Result<Source, Error> + Sync,
        deadline: &Deadline,
    ) -> Result<Settled<M::Proven, L::Found>, Unsettled>
    where
        M::Proven: Send,
    {
        let mut backoff = self.context.backoff();
        let (mut looked, mut in_doubt) = (false, false);
        let unsettled = |because, in_doubt| Unsettled { because, in_doubt, key: place.key() };
        let stopped = |error, in_doubt| unsettled(UnsettledCause::Stopped(error), in_doubt);
        loop {
            let (written, proven) = match machine.next(L::seen(&found)) {
                Settle::Known(proven) => return Ok(Settled { proven, written: None, found }),
                Settle::Stuck => return Err(unsettled(UnsettledCause::Stuck, in_doubt)),
                Settle::Write(condition, proven) => {
                    (content(&found).map(|content| write_under(condition, content)), proven)
                }
                Settle::Touch(version, proven) => match L::source(&found) {
                    Some(source) => (Ok(WriteOp::Replace(source, version)), proven),
                    None => return Err(unsettled(UnsettledCause::Stuck, in_doubt)),
                },
            };
            let op = written.map_err(|error| stopped(error.into(), in_doubt))?;
            let outcome = place.write(&op, deadline).await;
            let outcome = outcome.map_err(|error| stopped(error, true))?;
            in_doubt |= !outcome.is_certainly_not_applied();
            let (again, why) = match Answer::from(outcome) {
                Answer::Proof(written) => return Ok(Settled { proven, written, found }),
                Answer::Refused(outcome) => {
                    return Err(unsettled(UnsettledCause::Refused(outcome), in_doubt));
                }
                Answer::Later(why) => (true, why),
                Answer::Doubt(why) => {
                    if let Some(proven) = machine.guessed() {
                        return Ok(Settled { proven, written: None, found });
                    }
                    (false, why)
                }
            };
            let reason = WaitReason::Store(why);
            // The first read follows at once, so that a doubt is settled in two round trips.
            let waited = match again || looked {
                true => self.context.pause(deadline, &mut backoff, reason).await,
                false => deadline.left(&*self.context.config.clock, &reason).map(|_| ()),
            };
            waited.map_err(|error| stopped(error, in_doubt))?;
            if !again {
                looked = true;
                let look = place.look(deadline).await;
                found = look.map_err(|error| stopped(error, in_doubt))?;
            }
        }
    }
}

/// The write of a document under a condition.
pub(crate) fn write_under(condition: Condition, source: Source) -> WriteOp {
    match condition {
        Condition::Absent => WriteOp::Create(source),
        Condition::At(version) => WriteOp::Replace(source, version),
    }
}

/// Treats a missing collection as the answer of a lagging node.
///
/// The collection existed a moment ago.
fn perhaps_lagging(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::MissingCollection => {
            Outcome::RejectedInDoubt("its collection seems to be missing".to_owned())
        }
        outcome => outcome,
    }
}
