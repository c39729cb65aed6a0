//! The counts of a pass over open requests.

use std::ops::AddAssign;

use serde::Serialize;

use crate::processing::process::Processed;

/// The results of one pass over open requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// The number of committed requests.
    pub committed: usize,
    /// The number of requests that were rolled back.
    ///
    /// Counts refused requests, and requests in the state `terminating`.
    pub rolled_back: usize,
    /// The number of committed requests that the pass marked as finished.
    pub finished: usize,
    /// The number of failed requests that will be retried.
    pub failed: usize,
    /// The number of quarantined requests.
    pub quarantined: usize,
}

impl Tally {
    pub(crate) fn count(&mut self, processed: Processed) {
        match processed {
            Processed::Committed => self.committed += 1,
            Processed::Refused => self.rolled_back += 1,
            Processed::Failed => self.failed += 1,
            Processed::Quarantined => self.quarantined += 1,
            Processed::Waits | Processed::NotOurs => {}
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.finished += other.finished;
        self.failed += other.failed;
        self.quarantined += other.quarantined;
    }
}
