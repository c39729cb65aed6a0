//! The conditional write of a single document, without lock and record.
//!
//! A document keeps its last commit versions, which settle a write without an answer.

use std::sync::Arc;

use txn_protocol::document::{Image, View};
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::settle::{SingleOutcome, SingleWrite};

use crate::engine::apply::recent_commits::RecentCommits;
use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::deadline::Deadline;
use crate::engine::hot::Hot;
use crate::engine::read_entry::ReadEntry;
use crate::engine::store::document_target::Document;
use crate::engine::store::settle::{Settled, Unsettled, UnsettledCause};
use crate::engine::store::store_access::StoreAccess;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use txn_store::{Key, Outcome, Version, Write, WriteOp};

/// The writes of transactions that commit without a record.
pub(crate) struct SingleWrites {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    hot: Arc<Hot>,
    recent: Arc<RecentCommits>,
}

impl SingleWrites {
    pub(in crate::engine) fn new(base: &Base, hot: Arc<Hot>, recent: Arc<RecentCommits>) -> Self {
        let Base { context, store, .. } = base.clone();
        Self { context, store, hot, recent }
    }

    /// Writes one document at the version that was read without a lock.
    pub(crate) async fn write_single(
        &self,
        key: &Key,
        entry: &ReadEntry,
        image: &Image,
        commit: CommitVersion,
        deadline: &Deadline,
    ) -> Result<SingleOutcome, AttemptError> {
        let View::Present { version, stored, .. } = &entry.view else {
            return Ok(SingleOutcome::Overtaken);
        };
        // A read is old after 1/32 of a lease, which is some round trips.
        let is_old =
            self.context.now().saturating_sub(entry.read_at) > self.context.config.lease / 32;
        if is_old && !self.still_stands(key, *version, deadline).await? {
            cov_mark::hit!(old_read_of_a_single_write);
            return Ok(SingleOutcome::Overtaken);
        }
        let _doubt = self.recent.begin(commit);
        let content = self.recent.committed(stored, commit, image);
        let source = content.encode();
        let (read, recent) = (&entry.observed, &*stored.recent);
        let machine = SingleWrite { rules: &self.context.rules, read, recent, commit };
        let (place, read) = (Document { store: &self.store, key }, entry.view.clone());
        let settled =
            self.store.settle(&place, &machine, read, |_| Ok(source.clone()), deadline).await;
        match &settled {
            // The first write was acknowledged, so no other process wrote the document since the
            // read.
            Ok(Settled {
                proven: SingleOutcome::Committed,
                written: Some(at),
                found: View::Present { version: found, .. },
            }) if found == version => {
                self.hot.cache.applied(key, *at, source, content, self.context.now());
            }
            _ => self.hot.cache.forget(key),
        }
        settled.map(|settled| settled.proven).map_err(|unsettled| match unsettled {
            Unsettled { because: UnsettledCause::Stuck, .. } => {
                unknown(key, &Error::new(ErrorKind::Conflict, "too many other writes followed"))
            }
            unsettled => {
                let in_doubt = unsettled.in_doubt;
                let error = unsettled.while_doing("write it");
                if in_doubt { unknown(key, &error.into_error()) } else { error }
            }
        })
    }

    /// Whether a document is still at the version that was read.
    ///
    /// The check comes before the write, because a conflict is certain then. After the write, later
    /// writes may delete the document or fill its list of commits. Then nothing tells whether the
    /// write happened.
    async fn still_stands(
        &self,
        key: &Key,
        version: Version,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let verify = Write::new(key.clone(), WriteOp::Verify(Some(version)));
        let mut backoff = self.context.backoff();
        loop {
            let why = match self.store.write_one(verify.clone()).await {
                Outcome::Holds => return Ok(true),
                Outcome::Conflict => return Ok(false),
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    why
                }
                refused => return Err(Error::from_refused(&refused, key, "write it").into()),
            };
            self.context.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
        }
    }
}

/// The error for a write of unknown outcome, which has no record.
pub(crate) fn unknown(key: &Key, why: &Error) -> AttemptError {
    let message = format!("it is unknown whether the write happened; read the document: {why}");
    AttemptError::Fail(Error::new(ErrorKind::Unknown, message).at(key))
}
