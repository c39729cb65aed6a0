//! The law as one loop: only an acknowledged conditional write is knowledge. A machine says what is to be written about what
//! stands there; it is written, and looked at again, until a write is acknowledged.

use txn_protocol::machines::settle::{Answer, Condition, Machine, Settle};

use super::Engine;
use super::attempt_error::AttemptError;
use super::deadline::Deadline;
use super::wait_reason::WaitReason;
use crate::error::Error;
use crate::store::{Key, Outcome, Source, Version, Write, WriteOp};

/// Something that stands under one key, how it is written and how it is looked at.
pub(crate) trait Place: Sync {
    /// What a look finds.
    type Found: Send + Sync;
    /// As much of it as the machine is shown.
    type Seen;

    fn seen(found: &Self::Found) -> &Self::Seen;

    /// The bytes that stand there, for a touch.
    fn source(found: &Self::Found) -> Option<Source>;

    fn key(&self, engine: &Engine) -> Key;

    /// One write of it.
    fn write(
        &self,
        engine: &Engine,
        op: &WriteOp,
        _: &Deadline,
    ) -> impl Future<Output = Result<Outcome, AttemptError>> + Send {
        let write = Write::new(self.key(engine), op.clone());
        async move { Ok(perhaps_lagging(engine.write_one(write).await)) }
    }

    fn look(
        &self,
        engine: &Engine,
        deadline: &Deadline,
    ) -> impl Future<Output = Result<Self::Found, AttemptError>> + Send;
}

/// What is proven, and what it was concluded from.
#[derive(Debug)]
pub(crate) struct Settled<P, F> {
    pub(crate) proven: P,
    /// Where the acknowledged write stands; none if nothing had to be written.
    pub(crate) written: Option<Version>,
    /// What was seen before it.
    pub(crate) found: F,
}

/// Why something was not settled.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) because: Because,
    /// Whether one of the writes may have happened, or may happen yet.
    pub(crate) in_doubt: bool,
    key: Key,
}

#[derive(Debug)]
pub(crate) enum Because {
    /// There is no time left, or it cannot be looked at.
    Stopped(AttemptError),
    /// The store refuses it for good.
    Refused(Outcome),
    /// No write settles what stands there.
    Stuck,
}

impl Unsettled {
    /// The error for who was `doing` this.
    pub(crate) fn while_doing(self, doing: &str) -> AttemptError {
        match self.because {
            Because::Stopped(error) => error,
            Because::Refused(outcome) => Error::from_refused(&outcome, &self.key, doing).into(),
            Because::Stuck => {
                let message = format!("cannot {doing}: what stands there cannot be settled");
                Error::damaged(message).at(&self.key).into()
            }
        }
    }
}

impl Engine {
    /// Writes what the machine asks for, from what was found on, until an acknowledged write proves something. `content` is
    /// what is written where no touch is asked for. Dropped in the middle, it leaves a write in doubt.
    pub(crate) async fn settle<L: Place, M: Machine<Seen = L::Seen> + Sync>(
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
        let mut backoff = self.backoff();
        let (mut looked, mut in_doubt) = (false, false);
        let unsettled = |because, in_doubt| Unsettled { because, in_doubt, key: place.key(self) };
        let stopped = |error, in_doubt| unsettled(Because::Stopped(error), in_doubt);
        loop {
            let (written, proven) = match machine.next(L::seen(&found)) {
                Settle::Known(proven) => return Ok(Settled { proven, written: None, found }),
                Settle::Stuck => return Err(unsettled(Because::Stuck, in_doubt)),
                Settle::Write(Condition::Absent, proven) => {
                    (content(&found).map(WriteOp::Create), proven)
                }
                Settle::Write(Condition::At(version), proven) => {
                    (content(&found).map(|content| WriteOp::Replace(content, version)), proven)
                }
                Settle::Touch(version, proven) => match L::source(&found) {
                    Some(source) => (Ok(WriteOp::Replace(source, version)), proven),
                    None => return Err(unsettled(Because::Stuck, in_doubt)),
                },
            };
            let op = written.map_err(|error| stopped(error.into(), in_doubt))?;
            let outcome = place.write(self, &op, deadline).await;
            let outcome = outcome.map_err(|error| stopped(error, true))?;
            in_doubt |= !outcome.is_certainly_not_applied();
            let (again, why) = match Answer::from(outcome) {
                Answer::Proof(written) => return Ok(Settled { proven, written, found }),
                Answer::Refused(outcome) => {
                    return Err(unsettled(Because::Refused(outcome), in_doubt));
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
            // The first look is taken at once: what is in doubt is settled in two round trips.
            let waited = match again || looked {
                true => self.pause(deadline, &mut backoff, reason).await,
                false => deadline.left(&*self.config.clock, &reason).map(|_| ()),
            };
            waited.map_err(|error| stopped(error, in_doubt))?;
            if !again {
                looked = true;
                let look = place.look(self, deadline).await;
                found = look.map_err(|error| stopped(error, in_doubt))?;
            }
        }
    }
}

/// A collection that was there a moment ago seems to be missing to a node that lags.
fn perhaps_lagging(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::MissingCollection => {
            Outcome::RejectedInDoubt("its collection seems to be missing".to_owned())
        }
        outcome => outcome,
    }
}
