//! Versions of committed contents.

use std::fmt;
use std::time::Duration;

use super::time_uuid::{Parts, ProcessNumber, TimeUuid, as_text};

/// The version of all content that one commit writes.
///
/// Commit versions grow along the history of every document. A commit version is a version 1 UUID.
/// The timestamp is the moment of the commit, later than every version that the transaction read or
/// overwrote. A commit version is not the id of a transaction: no record has it as its id.
///
/// Commit versions are ordered by time, then by node. The order of the text differs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommitVersion(TimeUuid);

impl CommitVersion {
    /// A version of the usual length, for contents that are only tried.
    pub const STAND_IN: Self = Self(TimeUuid::EPOCH);

    pub(super) fn new(parts: Parts) -> Self {
        Self(TimeUuid::from_parts(parts))
    }

    pub(super) fn ticks(self) -> u64 {
        self.0.parts().ticks
    }

    /// The node of the process that committed.
    #[must_use]
    pub fn node(self) -> [u8; 6] {
        self.0.parts().node
    }

    /// The process that committed.
    #[must_use]
    pub fn process(self) -> ProcessNumber {
        self.0.parts().process()
    }

    /// The moment of the commit, since the Unix epoch.
    #[must_use]
    pub fn unix_time(self) -> Duration {
        self.0.unix_time()
    }

    /// The text without hyphens, as kept in [`txn_store::fields::TRANSACTION_RECENT`].
    pub fn compact(self) -> impl fmt::Display {
        self.0.compact()
    }
}

impl Ord for CommitVersion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = |version: &Self| {
            let Parts { ticks, sequence, node } = version.0.parts();
            (ticks, node, sequence)
        };
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for CommitVersion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

as_text!(CommitVersion);
