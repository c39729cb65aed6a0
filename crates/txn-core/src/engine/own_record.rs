//! What an owner knows of its own committed record.

use tokio::sync::Mutex;

use crate::engine::Engine;
use crate::engine::deadline::Deadline;
use crate::store::{Outcome, Source, Version, WriteOp};
use txn_protocol::ids::AttemptId;
use txn_protocol::record::{Record, State};

/// The committed record of a transaction of this process, at the version of its own last acknowledged write.
#[derive(Debug)]
pub(crate) struct OwnRecord {
    tid: AttemptId,
    source: Source,
    /// None once somebody else wrote it, or a write was not acknowledged.
    version: Mutex<Option<Version>>,
}

impl OwnRecord {
    /// The record as the commit wrote it; none if it cannot be written again.
    pub(crate) fn new(record: &Record, version: Option<Version>) -> Option<Self> {
        let committed = Record { state: State::Committed, ..record.clone() };
        let source = committed.encode().ok()?;
        Some(Self { tid: record.tid, source, version: Mutex::new(Some(version?)) })
    }

    /// Whether nobody else has begun to apply the transaction, by an acknowledged touch.
    pub(super) async fn is_untouched(&self, engine: &Engine, deadline: &Deadline) -> bool {
        let mut version = self.version.lock().await;
        let Some(at) = version.take() else { return false };
        let touch = WriteOp::Replace(self.source.clone(), at);
        if let Ok(Outcome::Applied(at)) = engine.write_record(self.tid, &touch, deadline).await {
            *version = Some(at);
        }
        version.is_some()
    }
}
