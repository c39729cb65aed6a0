//! The result of a read of a record.

use std::sync::Arc;

use txn_protocol::machines::record::RecordVersion;
use txn_protocol::record::Record;
use txn_protocol::rules::conflict::HolderState;
use txn_store::{Source, Version};

/// The result of reading a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordLookup {
    /// The state and the version of the record.
    pub(crate) standing: RecordVersion,
    /// The stored bytes, for a touch; `None` without a record.
    pub(crate) source: Option<Source>,
    pub(crate) record: Option<Arc<Record>>,
}

impl RecordLookup {
    pub(super) fn without_record(state: HolderState) -> Self {
        Self { standing: RecordVersion { state, version: None }, source: None, record: None }
    }

    /// A record known by an acknowledged write, without a read.
    pub(crate) fn known(standing: RecordVersion) -> Self {
        Self { standing, source: None, record: None }
    }

    /// No record, in a day that is not gone.
    pub(crate) fn missing() -> Self {
        Self::without_record(HolderState::Missing)
    }

    pub(crate) fn state(&self) -> HolderState {
        self.standing.state
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.standing.version
    }

    /// Whether the record shows a commit.
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self.state(), HolderState::Record(state) if state.is_committed())
    }
}
