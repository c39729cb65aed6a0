//! One conditional write of one document, without a lock and without a record. Whether it happened, where it was not
//! acknowledged, is told by the document itself: it keeps the last commit tids.

use txn_protocol::document::{Image, View};
use txn_protocol::rule::Rule;
use txn_protocol::rules::single::{Settling, settling};
use txn_protocol::tid::Tid;

use super::attempt_error::AttemptError;
use super::deadline::{Deadline, WaitReason};
use super::observe::ReadEntry;
use super::{Engine, ReadPreference};
use crate::error::{Error, ErrorKind};
use crate::store::{Key, Outcome, Version, Write, WriteOp};

/// What became of a write without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleOutcome {
    /// It is committed.
    Committed,
    /// Another write came first, and this one never happens.
    Overtaken,
}

impl Engine {
    /// Writes one document on the version that was read, which carried no lock.
    pub(crate) async fn write_single(
        &self,
        key: &Key,
        entry: &ReadEntry,
        image: &Image,
        commit: Tid,
        deadline: &Deadline,
    ) -> Result<SingleOutcome, AttemptError> {
        let View::Present { version, stored, .. } = &entry.view else {
            return Ok(SingleOutcome::Overtaken);
        };
        // A read is old after the 32nd part of a lease: some round trips.
        let is_old = self.now().saturating_sub(entry.read_at) > self.config.lease / 32;
        if is_old && !self.still_stands(key, *version, deadline).await? {
            return Ok(SingleOutcome::Overtaken);
        }
        let source = self.committed(stored, commit, image).encode();
        let write = Write::new(key.clone(), WriteOp::Replace(source, *version));
        let mut backoff = self.backoff();
        let mut sent = false;
        let doubt = |stop: AttemptError, sent: bool| {
            if sent { unknown(key, &stop.into_error()) } else { stop }
        };
        loop {
            let why = match self.write_one(write.clone()).await {
                Outcome::Applied(_) => return Ok(SingleOutcome::Committed),
                Outcome::Rejected(why) => {
                    let wait = self.pause(deadline, &mut backoff, WaitReason::Store(why)).await;
                    wait.map_err(|stop| doubt(stop, sent))?;
                    continue;
                }
                Outcome::Conflict | Outcome::Unknown(_)
                    if !self.rules.decides(Rule::SettleSingle) =>
                {
                    return Ok(SingleOutcome::Overtaken);
                }
                Outcome::Conflict => "the document is being changed".to_owned(),
                Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => why,
                Outcome::MissingCollection => "its collection seems to be missing".to_owned(),
                refused if !refused.is_certainly_not_applied() => {
                    return Err(unknown(key, &Error::from_refused(&refused, key, "write it")));
                }
                refused => {
                    let error = Error::from_refused(&refused, key, "write it").into();
                    return Err(doubt(error, sent));
                }
            };
            sent = true;
            let views = self
                .read_documents(std::slice::from_ref(key), ReadPreference::Primary, deadline)
                .await;
            let views = views.map_err(|stop| doubt(stop, sent))?;
            let now = views.first().unwrap_or(&View::Absent);
            let (touched, outcome) = match settling(&entry.observed, commit, now) {
                Settling::CommittedOnceTouched(version) => (version, SingleOutcome::Committed),
                Settling::NotAppliedOnceTouched(version) => (version, SingleOutcome::Overtaken),
                Settling::Resend => {
                    let wait = self.pause(deadline, &mut backoff, WaitReason::Store(why)).await;
                    wait.map_err(|stop| doubt(stop, sent))?;
                    continue;
                }
                Settling::Unknown => {
                    let error = Error::new(ErrorKind::Conflict, "too many other writes followed");
                    return Err(unknown(key, &error));
                }
            };
            if let View::Present { source, .. } = now {
                let touch = Write::new(key.clone(), WriteOp::Replace(source.clone(), touched));
                if matches!(self.write_one(touch).await, Outcome::Applied(_)) {
                    return Ok(outcome);
                }
            }
            let wait = self.pause(deadline, &mut backoff, WaitReason::Store(why)).await;
            wait.map_err(|stop| doubt(stop, sent))?;
        }
    }

    /// Whether a document is still at the version that was read, asked as long as nothing was sent: a conflict is then
    /// certain. Once the write is sent, what followed may have deleted the document, or filled its list of commits, and
    /// nothing tells any more whether it happened.
    async fn still_stands(
        &self,
        key: &Key,
        version: Version,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let verify = Write::new(key.clone(), WriteOp::Verify(Some(version)));
        let mut backoff = self.backoff();
        loop {
            let why = match self.write_one(verify.clone()).await {
                Outcome::Holds => return Ok(true),
                Outcome::Conflict => return Ok(false),
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    why
                }
                refused => return Err(Error::from_refused(&refused, key, "write it").into()),
            };
            self.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
        }
    }
}

/// A one-document write leaves no record that could be asked later.
pub(crate) fn unknown(key: &Key, why: &Error) -> AttemptError {
    let message = format!("it is unknown whether the write happened; look at the document: {why}");
    AttemptError::Fail(Error::new(ErrorKind::Unknown, message).at(key))
}
