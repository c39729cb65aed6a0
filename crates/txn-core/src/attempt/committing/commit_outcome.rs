//! The result of the steps up to the commit point.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attempt::committing::single::Single;
use txn_protocol::document::View;
use txn_protocol::record::Record;
use txn_store::{Key, Version};

/// The result of the steps up to the commit point.
pub(in crate::attempt) enum CommitOutcome {
    /// The transaction wrote nothing.
    Nothing,
    /// A single conditional write will commit the transaction.
    Single(Box<Single>),
    /// The record is committed.
    CommittedRecord(Box<CommittedRecord>),
}

/// A committed record, with the participants as the acknowledged locks show them.
pub(in crate::attempt) struct CommittedRecord {
    pub(in crate::attempt) record: Arc<Record>,
    /// The version of the committed record.
    pub(in crate::attempt) version: Version,
    /// Whether another process may have seen the commit earlier.
    pub(in crate::attempt) may_be_seen: bool,
    pub(in crate::attempt) known: BTreeMap<Key, View>,
}
