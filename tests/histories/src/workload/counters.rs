//! Counters of a run, readable while it runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use txn_fixtures::complaints::{Complaint, Complaints};
use txn_fixtures::longest::Longest;

/// Live counters of a [`Workload`](crate::Workload), over all its runs.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) acknowledged: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) complaints: Complaints<()>,
    pub(super) longest: Longest,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Transactions that were acknowledged.
    pub acknowledged: u64,
    /// Transactions that changed nothing and never will.
    pub aborted: u64,
    /// Transactions with an unknown outcome.
    pub unknown: u64,
    /// Transactions with an unknown outcome, reported as damaged. An operator must act.
    pub damaged: u64,
}

impl Counters {
    /// The errors of callers so far.
    #[must_use]
    pub fn complaints(&self) -> BTreeMap<((), String), Complaint> {
        self.complaints.so_far()
    }

    /// The duration and the outcome of the longest transaction so far.
    #[must_use]
    pub fn longest(&self) -> (Duration, String) {
        self.longest.so_far()
    }

    /// The present counts.
    #[must_use]
    pub fn now(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            acknowledged: read(&self.acknowledged),
            aborted: read(&self.aborted),
            unknown: read(&self.unknown),
            damaged: read(&self.damaged),
        }
    }
}
