//! The possible steps of the state machine, and their execution.

use proptest::prelude::*;
use proptest::strategy::Union;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use super::processes::World;

/// How many transactions may be open at a time.
pub(crate) const SLOTS: usize = 3;
/// The number of documents.
pub(crate) const KEYS: u8 = 3;
/// The number of processes.
pub(crate) const PROCESSES: usize = 2;

/// The mode of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    LocksAtTheEnd,
    LocksAsItReads,
    LocksReadsAtTheEnd,
    OnlyReads,
}

/// The fate of the last write of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LastWrite {
    NotSent,
    HalfSent,
    NotAnswered,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Begin {
        slot: usize,
        process: usize,
        how: How,
    },
    Get {
        slot: usize,
        key: u8,
    },
    Put {
        slot: usize,
        key: u8,
    },
    Insert {
        slot: usize,
        key: u8,
    },
    Delete {
        slot: usize,
        key: u8,
    },
    Commit {
        slot: usize,
    },
    /// The process dies at a write of the commit, or soon after.
    DieInCommit {
        slot: usize,
        at: u8,
        last: LastWrite,
    },
    RollBack {
        slot: usize,
    },
    Crash {
        process: usize,
    },
    Janitor {
        process: usize,
    },
}

/// The process and the mode of an open transaction.
type Slot = Option<(usize, How)>;

/// The part of the state that is known beforehand: the open transactions.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The seed of the store's faults, if it has any.
    pub(crate) faults: Option<u64>,
    open: [Slot; SLOTS],
}

pub(crate) struct Steps;

impl ReferenceStateMachine for Steps {
    type State = Shape;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Shape> {
        prop::option::of(any::<u64>())
            .prop_map(|faults| Shape { faults, open: [None; SLOTS] })
            .boxed()
    }

    fn transitions(shape: &Shape) -> BoxedStrategy<Step> {
        let closed = shape.slots(Option::is_none);
        let open = shape.slots(Option::is_some);
        let writing = shape.slots(|slot| slot.is_some_and(|(_, how)| how != How::OnlyReads));
        let processes = || 0..PROCESSES;
        let mut steps: Vec<(u32, BoxedStrategy<Step>)> = vec![
            (1, processes().prop_map(|process| Step::Crash { process }).boxed()),
            (1, processes().prop_map(|process| Step::Janitor { process }).boxed()),
        ];
        if !closed.is_empty() {
            let how = prop::sample::select(vec![
                How::LocksAtTheEnd,
                How::LocksAtTheEnd,
                How::LocksAsItReads,
                How::LocksAsItReads,
                How::LocksReadsAtTheEnd,
                How::OnlyReads,
            ]);
            let begin = (prop::sample::select(closed), processes(), how)
                .prop_map(|(slot, process, how)| Step::Begin { slot, process, how });
            steps.push((8, begin.boxed()));
        }
        if !open.is_empty() {
            let slot = || prop::sample::select(open.clone());
            let get = (slot(), 0..KEYS).prop_map(|(slot, key)| Step::Get { slot, key });
            steps.push((12, get.boxed()));
            steps.push((8, slot().prop_map(|slot| Step::Commit { slot }).boxed()));
            steps.push((1, slot().prop_map(|slot| Step::RollBack { slot }).boxed()));
        }
        if !writing.is_empty() {
            let slot = || prop::sample::select(writing.clone());
            let put = (slot(), 0..KEYS).prop_map(|(slot, key)| Step::Put { slot, key });
            let insert = (slot(), 0..KEYS).prop_map(|(slot, key)| Step::Insert { slot, key });
            let delete = (slot(), 0..KEYS).prop_map(|(slot, key)| Step::Delete { slot, key });
            let last = prop::sample::select(vec![
                LastWrite::NotSent,
                LastWrite::HalfSent,
                LastWrite::NotAnswered,
            ]);
            let die = (slot(), 0_u8..5, last).prop_map(|(slot, at, last)| Step::DieInCommit {
                slot,
                at,
                last,
            });
            steps.push((10, put.boxed()));
            steps.push((2, insert.boxed()));
            steps.push((3, delete.boxed()));
            steps.push((4, die.boxed()));
        }
        Union::new_weighted(steps).boxed()
    }

    fn preconditions(shape: &Shape, step: &Step) -> bool {
        let is_open = |slot: &usize| shape.open[*slot].is_some();
        let writes = |slot: &usize| shape.open[*slot].is_some_and(|(_, how)| how != How::OnlyReads);
        match step {
            Step::Begin { slot, .. } => !is_open(slot),
            Step::Get { slot, .. } | Step::Commit { slot } | Step::RollBack { slot } => {
                is_open(slot)
            }
            Step::Put { slot, .. }
            | Step::Insert { slot, .. }
            | Step::Delete { slot, .. }
            | Step::DieInCommit { slot, .. } => writes(slot),
            Step::Crash { .. } | Step::Janitor { .. } => true,
        }
    }

    fn apply(mut shape: Shape, step: &Step) -> Shape {
        match *step {
            Step::Begin { slot, process, how } => shape.open[slot] = Some((process, how)),
            Step::Commit { slot } | Step::RollBack { slot } => shape.open[slot] = None,
            Step::DieInCommit { slot, .. } => {
                if let Some((process, _)) = shape.open[slot] {
                    shape.crash(process);
                }
            }
            Step::Crash { process } => shape.crash(process),
            _ => {}
        }
        shape
    }
}

impl Shape {
    fn slots(&self, wanted: impl Fn(&Slot) -> bool) -> Vec<usize> {
        (0..SLOTS).filter(|slot| wanted(&self.open[*slot])).collect()
    }

    fn crash(&mut self, process: usize) {
        for open in &mut self.open {
            if open.is_some_and(|(at, _)| at == process) {
                *open = None;
            }
        }
    }
}

pub(crate) struct Sessions;

impl StateMachineTest for Sessions {
    type SystemUnderTest = World;
    type Reference = Steps;

    fn init_test(shape: &Shape) -> World {
        World::new(shape.faults)
    }

    fn apply(mut world: World, _: &Shape, step: Step) -> World {
        world.carry_out(&step);
        world
    }

    fn check_invariants(world: &World, _: &Shape) {
        world.readers_see_what_is_committed();
    }

    fn teardown(world: World, _: Shape) {
        world.ends_well();
    }
}
