//! The record of a committed transaction while it is applied, and the mark that it is finished.

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::places::RecordOf;
use crate::engine::settle::{Because, Unsettled};
use crate::engine::store_access::ReadPreference;
use crate::engine::transaction_table::RecordLookup;
use crate::error::Error;
use crate::event::Event;
use crate::store::{Outcome, Version, WriteOp};
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::record::{Finish, Standing};
use txn_protocol::record::{Record, State};
use txn_protocol::rules::conflict::HolderState;

impl Engine {
    /// Writes the record of a transaction of this process again, if somebody removed it: without it others would take
    /// the owner for dead, abort it, and take off the locks that are not applied yet. Where they did, the record is
    /// theirs.
    pub(crate) async fn keep_record(
        &self,
        record: &Record,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let found = self.record_of(record.tid, ReadPreference::Primary, deadline).await?;
        if found.state() == HolderState::Missing {
            let source = record.encode().map_err(|e| Error::damaged(e.to_string()))?;
            let write = self.write_record(record.tid, &WriteOp::Create(source), deadline).await?;
            if let Outcome::Applied(_) = write {
                self.tell_of_removed(record.tid);
            }
        }
        Ok(())
    }

    /// Marks a committed transaction as finished: every one of its writes was acknowledged.
    /// `version`: the version at which its record stands as committed.
    pub(crate) async fn finish(
        &self,
        record: &Record,
        version: Version,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let tid = record.tid;
        let finished =
            Record { state: State::Finished, modified_at: self.unix_millis(), ..record.clone() };
        let source = finished.encode().map_err(|e| Error::damaged(e.to_string()))?;
        let presumed = RecordLookup::known(Standing::at(State::Committed, version));
        let content = |_: &RecordLookup| Ok(source.clone());
        let settled = self.settle(&RecordOf(tid), &Finish, presumed, content, deadline).await;
        match settled {
            Ok(settled) => {
                if settled.found.state() == HolderState::Missing {
                    cov_mark::hit!(committed_record_was_removed);
                    self.tell_of_removed(tid);
                }
                Ok(())
            }
            // Its day was dropped, which takes that others finished it.
            Err(Unsettled { because: Because::Refused(Outcome::MissingCollection), .. }) => Ok(()),
            Err(Unsettled { because: Because::Stuck, .. }) => {
                cov_mark::hit!(committed_record_was_replaced);
                let message = "its committed record was removed, and replaced by something else: \
                               look at each of its documents";
                let key = self.table.record_key(tid);
                Err(Error::damaged(message).at(&key).in_transaction(tid).into())
            }
            Err(unsettled) => Err(unsettled.while_doing("finish a transaction")),
        }
    }

    /// Somebody removed the record of a transaction that is committed, as an acknowledged write has said.
    fn tell_of_removed(&self, tid: AttemptId) {
        let document = self.table.record_key(tid);
        tracing::error!(%tid, record = %document, "a committed record was removed");
        let what = "its committed record was removed; it is written again".to_owned();
        self.emit(&Event::Damaged { tid, document, what });
    }
}
