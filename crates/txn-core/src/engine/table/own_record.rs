//! The committed record of a transaction, as its owner knows it.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::engine::deadline::Deadline;
use crate::engine::table::Table;
use txn_protocol::record::Record;
use txn_store::{Outcome, Version, WriteOp};

/// The committed record of a transaction of this process.
///
/// The version is that of the process's last acknowledged write.
#[derive(Debug)]
pub(crate) struct OwnRecord {
    record: Arc<Record>,
    /// `None` after a foreign write, or after a write without an acknowledgement.
    version: Mutex<Option<Version>>,
}

impl OwnRecord {
    /// The record as the commit wrote it, at this version.
    pub(crate) fn new(record: Arc<Record>, version: Version) -> Self {
        Self { record, version: Mutex::new(Some(version)) }
    }

    /// Whether no other process has begun to apply the transaction.
    ///
    /// An acknowledged touch of the record proves the answer.
    pub(in crate::engine) async fn is_untouched(
        &self,
        table: &Arc<Table>,
        deadline: &Deadline,
    ) -> bool {
        let mut version = self.version.lock().await;
        let Some(at) = version.take() else { return false };
        let Ok(source) = self.record.encode() else { return false };
        let touch = WriteOp::Replace(source, at);
        let touched = table.write_record(self.record.tid, &touch, deadline).await;
        if let Ok(Outcome::Applied(at)) = touched {
            *version = Some(at);
        }
        version.is_some()
    }
}
