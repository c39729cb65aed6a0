//! Property test: processes follow the policy on one board, through faults.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use txn_store::Version;

use super::*;

const STEP: Duration = Duration::from_millis(1);
/// The lease in steps: a silent holder then loses its locks.
const LEASE: u32 = 300;

/// The event in one step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Each request has an answer.
    Sound,
    /// The process does nothing.
    Pause,
    /// Polls and writes of the board have no answer; the writes arrive.
    Deaf,
    /// The process stops for good.
    Die,
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        60 => Just(Fate::Sound),
        5 => Just(Fate::Pause),
        5 => Just(Fate::Deaf),
        1 => Just(Fate::Die),
    ]
}

struct Process {
    policy: Policy,
    documents: Vec<u32>,
    has_locks: bool,
    is_dead: bool,
    silent: u32,
    commits: u32,
    longest_wait: u32,
    wait: u32,
}

struct World {
    now: Duration,
    slots: Vec<(Slot, Option<Version>)>,
    writes: u64,
    /// The holder of each locked document.
    locks: BTreeMap<u32, usize>,
    processes: Vec<Process>,
}

impl World {
    fn new(documents: &[Vec<u32>]) -> Self {
        let process = |(index, documents): (usize, &Vec<u32>)| {
            let mut policy = Policy::new(Node(index as u64), STEP, Numbers::default());
            policy.met_another(Duration::ZERO);
            Process {
                policy,
                documents: documents.clone(),
                has_locks: false,
                is_dead: false,
                silent: 0,
                commits: 0,
                longest_wait: 0,
                wait: 0,
            }
        };
        Self {
            now: Duration::ZERO,
            slots: vec![(Slot::default(), None); MOST_SLOTS],
            writes: 0,
            locks: BTreeMap::new(),
            processes: documents.iter().enumerate().map(process).collect(),
        }
    }

    fn step(&mut self, fates: &[Fate]) {
        self.now += STEP;
        for index in 0..self.processes.len() {
            let fate = fates.get(index).copied().unwrap_or(Fate::Sound);
            let process = &mut self.processes[index];
            process.is_dead |= fate == Fate::Die;
            process.wait += 1;
            process.longest_wait = process.longest_wait.max(process.wait);
            if process.is_dead || fate == Fate::Pause {
                process.silent += 1;
                if process.silent >= LEASE {
                    process.has_locks = false;
                    self.locks.retain(|_, holder| *holder != index);
                }
            } else {
                process.silent = 0;
                self.act(index, fate == Fate::Deaf);
            }
        }
    }

    fn act(&mut self, index: usize, is_deaf: bool) {
        let now = self.now;
        let process = &mut self.processes[index];
        let documents = process.documents.clone();
        let work = Work {
            wanted: documents.iter().copied().map(KeyHash::from_bits).collect(),
            clients: 4,
            passed_over_since: Some(Duration::ZERO),
            is_locking: process.has_locks,
            is_under_way: process.has_locks,
        };
        let policy = &mut process.policy;
        policy.update(work, now);
        if policy.next_look(now).is_some_and(|at| at <= now) {
            policy.look_sent();
            if is_deaf {
                policy.look_failed(now);
            } else {
                let slots = self.slots[..policy.slots()].to_vec();
                policy.observe(Look { slots, sent_at: now }, now);
            }
        }
        if let Some(write) = policy.take_write(now) {
            let slot = &mut self.slots[write.number];
            let answer = if slot.1 == write.over {
                self.writes += 1;
                let version = Version { incarnation: 0, term: 1, seq_no: self.writes };
                *slot = (write.slot, Some(version));
                Written::At(version)
            } else {
                Written::Conflict
            };
            policy.written(if is_deaf { Written::Unknown } else { answer }, now);
        }
        let may_lock =
            documents.iter().all(|document| policy.may_lock(KeyHash::from_bits(*document), now));
        if process.has_locks {
            policy.committed(now);
            (process.commits, process.wait) = (process.commits + 1, 0);
            if policy.must_yield() || !may_lock {
                process.has_locks = false;
                self.locks.retain(|_, holder| *holder != index);
            }
        } else if may_lock && documents.iter().all(|document| !self.locks.contains_key(document)) {
            policy.locked(now);
            process.has_locks = true;
            self.locks.extend(documents.into_iter().map(|document| (document, index)));
        }
    }
}

fn documents() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let some = proptest::collection::btree_set(0u32..4, 1..4);
    proptest::collection::vec(some.prop_map(|set| set.into_iter().collect()), 2..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn live_wishes_get_their_turns(
        documents in documents(),
        faults in proptest::collection::vec(proptest::collection::vec(fates(), 3), 0..400),
        is_emptied in any::<bool>(),
    ) {
        let mut world = World::new(&documents);
        for fates in &faults {
            world.step(fates);
        }
        if is_emptied {
            for (slot, version) in &mut world.slots {
                world.writes += 1;
                *slot = Slot::default();
                *version = version.map(|version| Version { seq_no: world.writes, ..version });
            }
        }
        // Time for the leases of dead holders, and for the patience with dead wishes.
        for _ in 0..1_000 {
            world.step(&[]);
        }
        for process in &mut world.processes {
            (process.commits, process.wait, process.longest_wait) = (0, 0, 0);
        }
        for _ in 0..1_000 {
            world.step(&[]);
        }
        for (index, process) in world.processes.iter().enumerate().filter(|(_, one)| !one.is_dead) {
            // Two other processes with one full turn of 20 steps each, and their delays.
            prop_assert!(process.longest_wait < 150, "process {index}: {}", process.longest_wait);
            prop_assert!(process.commits > 200, "process {index}: {}", process.commits);
        }
    }
}
