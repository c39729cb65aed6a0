//! The board: processes take turns at hot documents, ordered by tickets.
//!
//! Each process runs the real `Policy`. The model adds the store, with the slots of the board, the
//! locks of the documents, wound-wait, and the lease of a dead holder. Time is discrete. Each
//! process takes one step per round, in any order. A slow process takes one step in several rounds.
//! The durations of `Numbers` are a few rounds. The model keeps the moments of a policy relative to
//! the present, and renames tickets and versions, so that the states are finite.

mod step;
mod world;

use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};
use txn_protocol::board::{DocumentSet, Entry, Node, Numbers, Policy, Slot, heads};
use txn_protocol::rule::Rules;

use step::LEASE;
use world::{DOCS, NOW, Phase, Process, ROUND, documents, hash};

pub use step::Fate;
pub use world::{Budget, World};

use crate::check::{Explored, Reached, explore, reach_the_end};
use crate::suite::{Case, Flaw, Shows, Subject, Suite};

/// Rounds of a pause: longer than the patience.
const SLEEP: u8 = 12;

/// The rule of the board that a variant leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftOut {
    /// None.
    #[default]
    Nothing,
    /// A process that waits for the board releases its locks.
    EmptyHands,
    /// The node decides between equal tickets.
    Ties,
    /// A process that starts again is another node.
    FreshNode,
    /// A lock is written only over a document without a lock.
    Condition,
    /// A process locks no document before its turn.
    Order,
    /// A process releases its documents at the end of its turn.
    Yield,
}

/// Which processes can commit again, from each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Each live process.
    Each,
    /// Some live process.
    Any,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Contest {
    rules: Rules,
    numbers: Numbers,
    /// The documents of each process, one bit each.
    sets: Vec<u8>,
    /// Rounds between two steps of each process.
    periods: Vec<u8>,
    clients: Vec<u32>,
    /// Whether the processes take their steps of a round in any order.
    any_order: bool,
    /// Whether each process has met another one before.
    is_engaged: bool,
    ends: Ends,
    budget: Budget,
    /// The maximum number of foreign turns that a process waits for.
    bound: u8,
    left_out: LeftOut,
}

/// A content of a slot of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbitrary {
    /// A process that does not exist wishes all documents first. The wish is before those of all
    /// other processes.
    First,
    /// A process that does not exist wishes all documents last. The wish is after those of all
    /// other processes.
    Last,
    /// This process wishes its documents before all other processes.
    Forged(usize),
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process takes the steps that are due.
    Act(usize, Fate),
    /// A process pauses.
    Sleep(usize),
    /// A process has no work for one step.
    Rest(usize),
    /// A process dies.
    Die(usize),
    /// A dead process starts again.
    Start(usize),
    /// A late write of the board lands.
    Land,
    /// The board loses all wishes.
    Empty,
    /// A slot has an arbitrary content.
    Overwrite(usize, Arbitrary),
    /// The board is unreachable from now on.
    Blackout,
}

/// Durations of a few rounds.
fn numbers() -> Numbers {
    let rounds = |rounds: u32| ROUND * rounds;
    Numbers {
        passed_over: Duration::ZERO,
        passed_over_round_trips: 1,
        turn_round_trips: 3,
        shortest_turn: rounds(3),
        longest_turn: rounds(6),
        longest_cycle: rounds(12),
        patience_turns: 3,
        patience_round_trips: 8,
        longest_patience: rounds(30),
        blind_after: rounds(8),
        blind_round_trips: 3,
        slow_factor: 2,
        slow_stride_round_trips: 4,
        look_pause: rounds(1),
        shortest_look_pause: rounds(1),
        idle_percent: 40,
        dead_after: rounds(24),
        dormant_look: rounds(6),
        handoff_pause: rounds(3),
        handoff_round_trips: 2,
        dormant_after: rounds(16),
    }
}

impl Contest {
    fn process(&self, p: usize, node: u64) -> Process {
        let round_trip = ROUND * u32::from(self.periods[p]);
        let mut policy = Policy::new(Node(node), round_trip, self.numbers);
        if self.is_engaged {
            policy.met_another(NOW);
        }
        Process {
            policy,
            node,
            phase: Phase::Wants,
            held: 0,
            is_wounded: false,
            passed_over_since: None,
            look: None,
            pause: 0,
            lease: 0,
            passed: 0,
            most: 0,
        }
    }

    fn step(&self, world: &mut World, step: Step) {
        let budget = &mut world.budget;
        match step {
            Step::Act(p, fate) => {
                budget.lost -= u8::from(fate == Fate::Lost);
                budget.late -= u8::from(fate == Fate::Late);
                self.act(world, p, fate);
            }
            Step::Sleep(p) => {
                budget.sleeps -= 1;
                world.processes[p].pause = SLEEP;
            }
            Step::Rest(p) => {
                budget.rests -= 1;
                let process = &mut world.processes[p];
                (process.phase, process.passed, process.passed_over_since) =
                    (Phase::Rests, 0, None);
            }
            Step::Die(p) => {
                budget.deaths -= 1;
                // Of a dead process only its wish and its locks remain.
                let dead = self.process(p, world.processes[p].node);
                let most = world.processes[p].most;
                world.processes[p] = Process { phase: Phase::Dead, lease: LEASE, most, ..dead };
            }
            Step::Start(p) => {
                budget.restarts -= 1;
                world.release(p);
                let Process { node, most, .. } = world.processes[p];
                world.processes[p] = if self.left_out == LeftOut::FreshNode {
                    Process { most, ..self.process(p, node) }
                } else {
                    self.process(p, node + 8)
                };
            }
            Step::Land => {
                if let Some(write) = world.late.take() {
                    world.write(write);
                }
            }
            Step::Empty => {
                budget.emptied -= 1;
                for number in 0..world.slots.len() {
                    world.overwrite(number, Slot::default());
                }
            }
            Step::Overwrite(number, arbitrary) => {
                budget.arbitrary -= 1;
                let slot = self.arbitrary(world, arbitrary);
                world.overwrite(number, slot);
            }
            Step::Blackout => {
                budget.blackouts -= 1;
                world.is_unreachable = true;
            }
        }
        world.pass_time();
    }

    fn arbitrary(&self, world: &World, arbitrary: Arbitrary) -> Slot {
        let most = world.processes.iter().map(|process| process.most).max().unwrap_or(0);
        let (node, ticket, set) = match arbitrary {
            Arbitrary::First => (7, 0, u8::MAX),
            Arbitrary::Last => (7, most + 20_000, u8::MAX),
            Arbitrary::Forged(p) => (world.processes[p].node, 0, self.sets[p]),
        };
        let set: DocumentSet = documents(set).map(hash).collect();
        let entry = Entry { ticket, stride: 3_000, clients: 4, round_trip: ROUND, set };
        Slot { wish: Some((Node(node), entry)) }
    }

    /// Whether each document has at most one process that has its turn.
    fn has_one_head(&self, world: &World) -> bool {
        let heads_for = |process: &Process| -> Vec<usize> {
            let own = world.slots.iter().filter_map(|(slot, _)| slot.wish.as_ref());
            let ticket = own
                .filter(|(node, _)| *node == Node(process.node))
                .map(|(_, entry)| entry.ticket)
                .max();
            let slots = self.read(process.node, ticket, world.slots.clone());
            let wishes = slots.iter().filter_map(|(slot, _)| slot.wish.as_ref());
            let heads = heads(wishes.map(|(node, entry)| (*node, entry)));
            let of_process = |document: &usize| {
                let mut own = heads.iter().filter(|(node, _)| *node == Node(process.node));
                own.any(|(_, entry)| entry.set.may_contain(hash(*document)))
            };
            (0..DOCS).filter(of_process).collect()
        };
        let mut found = [0; DOCS];
        for process in &world.processes {
            heads_for(process).into_iter().for_each(|document| found[document] += 1);
        }
        found.into_iter().all(|heads| heads <= 1)
    }
}

impl Model for Contest {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let processes = (0..self.sets.len()).map(|p| self.process(p, p as u64)).collect();
        vec![World {
            processes,
            slots: Vec::new(),
            locks: [0; DOCS],
            late: None,
            budget: self.budget,
            is_unreachable: false,
            has_shrunk: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let budget = world.budget;
        let may = |count: u8, step: Step| (count > 0).then_some(step);
        for (p, process) in world.processes.iter().enumerate() {
            if !process.is_alive() {
                steps.extend(may(budget.restarts, Step::Start(p)));
                continue;
            }
            steps.extend(may(budget.deaths, Step::Die(p)));
        }
        let ready = |p: &usize| world.processes[*p].is_alive() && world.processes[*p].pause == 0;
        let ready = (0..world.processes.len()).filter(ready);
        for p in ready.take(if self.any_order { usize::MAX } else { 1 }) {
            steps.push(Step::Act(p, Fate::Sound));
            steps.extend(may(budget.lost, Step::Act(p, Fate::Lost)));
            steps.extend(may(budget.late, Step::Act(p, Fate::Late)));
            steps.extend(may(budget.sleeps, Step::Sleep(p)));
            let process = &world.processes[p];
            if process.phase == Phase::Wants && process.held == 0 {
                steps.extend(may(budget.rests, Step::Rest(p)));
            }
        }
        steps.extend(world.late.as_ref().map(|_| Step::Land));
        steps.extend(may(budget.emptied, Step::Empty));
        steps.extend(may(budget.blackouts, Step::Blackout));
        if budget.arbitrary > 0 {
            for number in 0..world.slots.len() {
                let forged = (0..self.sets.len()).map(Arbitrary::Forged);
                let contents = [Arbitrary::First, Arbitrary::Last].into_iter().chain(forged);
                steps.extend(contents.map(|content| Step::Overwrite(number, content)));
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        self.step(&mut world, step);
        Some(world.canonical())
    }

    fn format_action(&self, step: &Step) -> String {
        match step {
            Step::Act(p, Fate::Sound) => format!("P{} acts", p + 1),
            Step::Act(p, Fate::Lost) => format!("P{} acts, no answer of the board", p + 1),
            Step::Act(p, Fate::Late) => format!("P{} acts, the board is late", p + 1),
            Step::Sleep(p) => format!("P{} pauses", p + 1),
            Step::Rest(p) => format!("P{} has no work", p + 1),
            Step::Die(p) => format!("P{} dies", p + 1),
            Step::Start(p) => format!("P{} starts again", p + 1),
            Step::Land => "late write of the board lands".to_owned(),
            Step::Empty => "board loses all wishes".to_owned(),
            Step::Overwrite(number, content) => format!("slot {number} becomes {content:?}"),
            Step::Blackout => "board becomes unreachable".to_owned(),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a process that waits holds no lock",
                |model: &Self, world: &World| {
                    let waits = |p: usize| {
                        let process = &world.processes[p];
                        let holds = (0..DOCS).any(|document| process.holds(document));
                        process.phase == Phase::Wants && holds && model.must_wait(world, p)
                    };
                    !(0..world.processes.len()).any(waits)
                },
            ),
            Property::always("a document has one head", |model: &Self, world| {
                model.has_one_head(world)
            }),
            Property::always("tickets grow", |_, world: &World| !world.has_shrunk),
            Property::always("a lock has one holder", |_, world: &World| {
                (0..DOCS).all(|document| {
                    world.processes.iter().filter(|process| process.holds(document)).count() <= 1
                })
            }),
            Property::always("the wait is bounded", |model: &Self, world: &World| {
                world.processes.iter().all(|process| process.passed <= model.bound)
            }),
            Property::sometimes("all processes wish", |_, world: &World| {
                world.processes.iter().all(|process| process.policy.ticket().is_some())
            }),
            Property::sometimes("the last process commits", |_, world: &World| {
                world.processes.last().is_some_and(|process| process.phase == Phase::Committed)
            }),
            Property::sometimes("a turn ends", |_, world: &World| {
                world.processes.iter().any(|process| process.policy.must_yield())
            }),
        ]
    }
}

impl Subject for Contest {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn explore(&self) -> Explored {
        explore(self.clone())
    }

    fn reach_the_end(&self) -> Reached {
        let is_over = |process: &Process| matches!(process.phase, Phase::Committed | Phase::Dead);
        if self.ends == Ends::Any {
            return reach_the_end(self, |world: &World| world.processes.iter().any(is_over));
        }
        let reach =
            |p: usize| reach_the_end(self, move |world: &World| is_over(&world.processes[p]));
        let all: Vec<Reached> = (0..self.sets.len()).map(reach).collect();
        let states = all.first().map_or(0, |reached| reached.states);
        let took = all.iter().map(|reached| reached.took).sum();
        Reached { states, stuck: all.into_iter().find_map(|reached| reached.stuck), took }
    }
}

/// Two processes that lock the same two documents.
///
/// The orders of the locks are opposite.
fn two() -> Contest {
    Contest {
        rules: Rules::all(),
        numbers: numbers(),
        sets: vec![0b11, 0b11],
        periods: vec![1, 1],
        clients: vec![4, 4],
        any_order: true,
        is_engaged: true,
        ends: Ends::Each,
        budget: Budget::default(),
        bound: 3,
        left_out: LeftOut::Nothing,
    }
}

/// The second process takes a step in each third round.
fn slow() -> Contest {
    Contest { periods: vec![1, 3], sets: vec![0b11, 0b01], bound: 8, ..two() }
}

/// Two processes with one document each, and a slow one with both.
fn three() -> Contest {
    Contest {
        sets: vec![0b01, 0b10, 0b11],
        periods: vec![1, 1, 2],
        clients: vec![4, 4, 4],
        any_order: false,
        bound: 10,
        ..two()
    }
}

/// Three processes with one document.
fn at_one() -> Contest {
    Contest { sets: vec![0b01; 3], ..three() }
}

/// The processes take their steps of a round in one order.
fn ordered(contest: Contest) -> Contest {
    Contest { any_order: false, ..contest }
}

/// A wide bound on the turns of other processes.
fn far(contest: Contest) -> Contest {
    Contest { bound: 40, ..contest }
}

fn with(contest: Contest, budget: Budget) -> Contest {
    Contest { budget, ..contest }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    let b = Budget::default();
    let lost = Budget { lost: 1, emptied: 1, ..b };
    let restarts = Budget { deaths: 1, restarts: 1, ..b };
    let arbitrary = Budget { arbitrary: 1, ..b };
    let unreachable = Budget { blackouts: 1, ..b };
    let dormant = Contest { is_engaged: false, ..with(two(), Budget { rests: 1, ..b }) };
    let blackout = Contest { ends: Ends::Any, ..with(ordered(two()), unreachable) };
    Suite {
        name: "board",
        cases: vec![
            case("two", "1 request lost", with(two(), Budget { lost: 1, ..b }), 17_206),
            case("two", "1 write of the board late", with(two(), Budget { late: 1, ..b }), 25_138),
            case("two", "1 death", with(two(), Budget { deaths: 1, ..b }), 34_694),
            case("two in order", "1 restart", with(ordered(two()), restarts), 172_127).large(),
            case("two in order", "1 arbitrary", with(ordered(two()), arbitrary), 43_666),
            case("two that met no other", "1 without work", dormant, 22_865),
            case("two in order", "board unreachable for good", blackout.clone(), 12_606),
            case("two, one slow", "1 pause", with(slow(), Budget { sleeps: 1, ..b }), 37_695),
            case("two, one slow", "1 death", with(slow(), Budget { deaths: 1, ..b }), 18_774),
            case(
                "two, one slow, in order",
                "1 lost, 1 emptied",
                with(ordered(slow()), lost),
                37_153,
            ),
            case(
                "two, one slow, in order",
                "1 arbitrary",
                with(ordered(slow()), arbitrary),
                21_491,
            ),
            case("three", "1 request lost", with(three(), Budget { lost: 1, ..b }), 6_221),
            case("three", "1 emptied", with(three(), Budget { emptied: 1, ..b }), 8_239),
            case("three", "1 death", with(three(), Budget { deaths: 1, ..b }), 28_157),
            case(
                "three at one document",
                "1 death",
                with(at_one(), Budget { deaths: 1, ..b }),
                50_282,
            ),
            case("two", "1 emptied", with(far(two()), Budget { emptied: 1, ..b }), 89_109).large(),
            case("two", "1 arbitrary", with(far(two()), arbitrary), 398_874).large(),
            case("two, one slow", "1 lost, 1 emptied", with(far(slow()), lost), 423_219).large(),
            case("three", "1 arbitrary", with(far(three()), arbitrary), 123_208).large(),
        ],
        flaws: vec![
            without(
                "a process that waits for the board releases its locks",
                LeftOut::EmptyHands,
                with(two(), arbitrary),
                Shows::Wrong,
            ),
            without("the node decides between equal tickets", LeftOut::Ties, two(), Shows::Wrong),
            without(
                "a process that starts again is another node",
                LeftOut::FreshNode,
                with(two(), restarts),
                Shows::Wrong,
            ),
            without(
                "a lock is written only over a document without a lock",
                LeftOut::Condition,
                with(two(), arbitrary),
                Shows::Wrong,
            ),
            without("a process locks no document out of turn", LeftOut::Order, two(), Shows::Wrong),
            without(
                "a process releases its documents at the end of its turn",
                LeftOut::Yield,
                Contest { sets: vec![0b01; 2], periods: vec![3, 1], ..two() },
                Shows::Stuck,
            ),
            Flaw {
                rule: "a wish that keeps its ticket for too long is skipped",
                subject: Arc::new(Contest {
                    numbers: Numbers {
                        patience_turns: 1_000,
                        longest_patience: Duration::MAX / 2,
                        ..numbers()
                    },
                    ..with(two(), Budget { deaths: 1, ..b })
                }),
                shows: Shows::Stuck,
            },
            Flaw {
                rule: "a board that was not read for a while counts as empty",
                subject: Arc::new(Contest {
                    numbers: Numbers { blind_after: ROUND * 1_000, ..numbers() },
                    ..blackout.clone()
                }),
                shows: Shows::Stuck,
            },
            Flaw {
                rule: "each process gets its turn only while the board can be read",
                subject: Arc::new(Contest { ends: Ends::Each, ..blackout.clone() }),
                shows: Shows::Stuck,
            },
        ],
    }
}

/// A case in which each process can always commit again.
///
/// The process must be alive. The case covers every state.
fn case(name: &'static str, bounds: &'static str, contest: Contest, states: usize) -> Case {
    Case { name, bounds, subject: Arc::new(contest), states, ends: true, large: false }
}

/// A variant without one of the rules.
fn without(rule: &'static str, left_out: LeftOut, contest: Contest, shows: Shows) -> Flaw {
    Flaw { rule, subject: Arc::new(Contest { left_out, ..contest }), shows }
}
