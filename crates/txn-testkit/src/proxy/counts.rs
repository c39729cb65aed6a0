//! Counts of requests and faults.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::FaultKind;

/// The counts of a proxy so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that arrived complete.
    pub requests: u64,
    /// Requests that the server answered, repetitions included.
    pub forwarded: u64,
    /// Requests that arrived on a forgotten connection.
    pub forgotten: u64,
    /// Faults that happened, by kind.
    ///
    /// A fault that had no effect, because the server did not answer, does not count.
    pub faults: BTreeMap<FaultKind, u64>,
}

impl Counts {
    /// Returns the number of faults of a kind.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.faults.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the number of all faults.
    #[must_use]
    pub fn all_faults(&self) -> u64 {
        self.faults.values().sum()
    }
}

#[derive(Default)]
pub(crate) struct Tally {
    requests: AtomicU64,
    forwarded: AtomicU64,
    forgotten: AtomicU64,
    faults: [AtomicU64; FaultKind::ALL.len()],
}

impl Tally {
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn forgotten(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fault(&self, kind: FaultKind) {
        self.faults[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let fault = |kind: FaultKind| (kind, number(&self.faults[kind as usize]));
        Counts {
            requests: number(&self.requests),
            forwarded: number(&self.forwarded),
            forgotten: number(&self.forgotten),
            faults: FaultKind::ALL.into_iter().map(fault).collect(),
        }
    }
}
