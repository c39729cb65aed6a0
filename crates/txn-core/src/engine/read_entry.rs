//! A document as a transaction or a reader read it.

use std::time::Duration;

use txn_protocol::document::View;
use txn_protocol::rules::validate::Observed;

/// A document as it was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadEntry {
    pub(crate) observed: Observed,
    pub(crate) view: View,
    /// The time of the read, on the monotonic clock.
    pub(crate) read_at: Duration,
}

impl ReadEntry {
    /// Whether this read saw later content, as far as the reads tell.
    pub(crate) fn is_later_than(&self, other: &Self) -> bool {
        match (self.observed.version, other.observed.version) {
            (Some(mine), Some(others)) => mine > others,
            _ => {
                (self.observed.commit_version, self.read_at)
                    > (other.observed.commit_version, other.read_at)
            }
        }
    }
}
