//! The record after the commit: kept during the apply, then finished.

use crate::engine::apply::Applier;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::{Unsettled, UnsettledCause};
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::record_lookup::RecordLookup;
use crate::engine::table::records::RecordOf;
use crate::error::Error;
use txn_protocol::machines::record::{Finish, RecordVersion};
use txn_protocol::record::{Record, State};
use txn_protocol::rules::conflict::HolderState;
use txn_store::{Outcome, Version, WriteOp};

impl Applier {
    /// Writes a removed record of this process again.
    ///
    /// Without the record other processes would take the owner for dead, abort the transaction, and
    /// remove its unapplied locks. If another process has written a record meanwhile, that record
    /// stays.
    pub(crate) async fn keep_record(
        &self,
        record: &Record,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let found = self.table.record_of(record.tid, ReadPreference::Primary, deadline).await?;
        if found.state() == HolderState::Missing {
            let source = record.encode().map_err(|e| Error::damaged(e.to_string()))?;
            let write =
                self.table.write_record(record.tid, &WriteOp::Create(source), deadline).await?;
            if let Outcome::Applied(_) = write {
                self.tell_of_removed(record.tid);
            }
        }
        Ok(())
    }

    /// Marks a committed transaction as finished, after every apply is acknowledged.
    ///
    /// `version`: the version of the committed record.
    pub(crate) async fn finish(
        &self,
        record: &Record,
        version: Version,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let tid = record.tid;
        let finished = Record {
            state: State::Finished,
            modified_at: self.time.unix_millis(),
            ..record.clone()
        };
        let source = finished.encode().map_err(|e| Error::damaged(e.to_string()))?;
        let presumed = RecordLookup::known(RecordVersion::at(State::Committed, version));
        let content = |_: &RecordLookup| Ok(source.clone());
        let settled = self
            .store
            .settle(&RecordOf { table: &self.table, tid }, &Finish, presumed, content, deadline)
            .await;
        match settled {
            Ok(settled) => {
                if settled.found.state() == HolderState::Missing {
                    cov_mark::hit!(committed_record_was_removed);
                    self.tell_of_removed(tid);
                }
                Ok(())
            }
            // The day was dropped, so another process has finished the transaction.
            Err(Unsettled {
                because: UnsettledCause::Refused(Outcome::MissingCollection), ..
            }) => Ok(()),
            Err(Unsettled { because: UnsettledCause::Stuck, .. }) => {
                cov_mark::hit!(committed_record_was_replaced);
                let message = "its committed record was removed, and replaced by something else: \
                               check each of its documents";
                let key = self.table.record_key(tid);
                Err(Error::damaged(message).at(&key).in_transaction(tid).into())
            }
            Err(unsettled) => Err(unsettled.while_doing("finish a transaction")),
        }
    }
}
