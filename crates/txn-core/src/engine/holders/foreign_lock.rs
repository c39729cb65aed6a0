//! Locks of other transactions, by holder.

use std::collections::BTreeMap;

use crate::engine::holders::failure_detector::LookedAt;
use crate::engine::table::record_lookup::RecordLookup;
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_store::Key;

/// A foreign lock, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct ForeignLock {
    pub(crate) key: Key,
    pub(crate) view: View,
}

/// Groups locks by holder.
pub(crate) fn by_holder(
    locks: impl IntoIterator<Item = ForeignLock>,
) -> BTreeMap<AttemptId, Vec<ForeignLock>> {
    let mut holders: BTreeMap<AttemptId, Vec<ForeignLock>> = BTreeMap::new();
    for lock in locks {
        if let Some(holder) = lock.view.holder() {
            holders.entry(holder).or_default().push(lock);
        }
    }
    holders
}

/// The locks and the record of one holder, as they were read.
pub(crate) struct Holding {
    pub(crate) holder: AttemptId,
    pub(crate) locks: Vec<ForeignLock>,
    /// The record, and the time of its read.
    pub(crate) found: RecordLookup,
    pub(crate) at: LookedAt,
    /// Whether the caller found the record, too. Then all participants are wanted.
    pub(crate) includes_record: bool,
}
