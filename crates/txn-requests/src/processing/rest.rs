//! The rest of a bounded poll, at which the next poll continues.

use std::collections::BTreeSet;
use std::sync::Arc;

use txn_core::store::Cursor;

/// The rest of a bounded poll.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The requests that the poll found, and did not return.
    pub(crate) ids: BTreeSet<Arc<str>>,
    /// The position after these requests.
    pub(crate) next: Cursor,
}
