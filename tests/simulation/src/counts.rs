//! How much happened, and what did not hold.

use std::collections::BTreeMap;

/// What became of one world.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Its seed.
    pub seed: u64,
    /// What did not hold.
    pub violations: Vec<String>,
    /// How much happened.
    pub counts: Counts,
    /// The same for the same seed and the same engine.
    pub fingerprint: u64,
}

/// How much happened in a world, or in many.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Operations that failed for certain.
    pub aborted: u64,
    /// Operations whose caller was not told, and which are committed.
    pub settled_committed: u64,
    /// Operations whose caller was not told, and which are not committed.
    pub settled_aborted: u64,
    /// Transactions of the dead that were applied or voided by others.
    pub recoveries: u64,
    /// Transactions that were wounded by older ones.
    pub wounds: u64,
    /// Partitions of the transaction table that were dropped.
    pub drops: u64,
    /// Transactions that were composed with others.
    pub composed: u64,
    /// Documents that were locked over the commit before.
    pub handed_off: u64,
    /// Whatever went wrong, by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts a fault.
    pub(crate) fn fault(&mut self, kind: &'static str, times: u64) {
        *self.faults.entry(kind).or_default() += times;
    }

    /// Counts of one more world.
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.aborted += other.aborted;
        self.settled_committed += other.settled_committed;
        self.settled_aborted += other.settled_aborted;
        self.recoveries += other.recoveries;
        self.wounds += other.wounds;
        self.drops += other.drops;
        self.composed += other.composed;
        self.handed_off += other.handed_off;
        for (kind, times) in &other.faults {
            self.fault(kind, *times);
        }
    }
}
