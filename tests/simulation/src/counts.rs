//! Results and counts of simulated runs.

use std::collections::BTreeMap;

use txn_protocol::rule::Rule;

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// The seed of the run.
    pub seed: u64,
    /// The violations of invariants.
    pub violations: Vec<String>,
    /// The counts of the run.
    pub counts: Counts,
    /// A hash of the run. Equal seeds and equal engines give equal hashes.
    pub fingerprint: u64,
}

/// The counts of a run, or of many runs.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Operations that failed for certain.
    pub aborted: u64,
    /// Committed operations with an unknown outcome for their caller.
    pub settled_committed: u64,
    /// Operations with an unknown outcome for their caller that are not committed.
    pub settled_aborted: u64,
    /// Transactions of dead processes that other processes applied or aborted.
    pub recoveries: u64,
    /// Transactions that older transactions wounded.
    pub wounds: u64,
    /// Partitions of the transaction table that were dropped.
    pub drops: u64,
    /// Transactions that were merged into groups.
    pub composed: u64,
    /// Documents that were locked over the commit before.
    pub handed_off: u64,
    /// Injected faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The number of runs with two kinds of faults. The two kinds are in alphabetic order.
    pub pairs: BTreeMap<(&'static str, &'static str), u64>,
    /// How often the engine asked for each rule.
    pub asked: BTreeMap<Rule, u64>,
    /// How often each mark of a rare branch was hit.
    pub marks: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts a fault.
    pub(crate) fn fault(&mut self, kind: &'static str, times: u64) {
        *self.faults.entry(kind).or_default() += times;
    }

    /// Adds the counts of one more run.
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
        add_each(&mut self.faults, &other.faults);
        add_each(&mut self.pairs, &other.pairs);
        add_each(&mut self.asked, &other.asked);
        add_each(&mut self.marks, &other.marks);
    }

    /// Notes the pairs of the faults of one run.
    pub(crate) fn note_pairs(&mut self) {
        let faults = self.faults.iter().filter(|(_, times)| **times > 0);
        let kinds: Vec<&'static str> = faults.map(|(kind, _)| *kind).collect();
        for (at, one) in kinds.iter().enumerate() {
            self.pairs.extend(kinds[at + 1..].iter().map(|other| ((*one, *other), 1)));
        }
    }
}

fn add_each<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (key, times) in more {
        *sums.entry(*key).or_default() += times;
    }
}
