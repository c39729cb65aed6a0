//! Counters of a run, readable while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Live counters of a [`Workload`](crate::Workload), over all its runs.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) acknowledged: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) damaged: AtomicU64,
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
    /// Transactions with an unknown outcome that were reported as damaged: an operator must act.
    pub damaged: u64,
}

impl Counters {
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
