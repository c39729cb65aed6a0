//! The partition of one day, made and dropped concurrently.
//!
//! Slow processes make the partition, and two janitors drop it.
//!
//! Meanwhile a transaction of that day commits, another process finds its lock, and a node lags
//! behind.

mod day;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};
use txn_protocol::machines::partition::{Dropping, Making, may_drop};
use txn_protocol::rule::{Rule, Rules};
use txn_protocol::rules::conflict::HolderState;
use txn_protocol::rules::resolve::{RecoveryStep, recovery};

use day::{Doing, Held, Janitor, Maker, Partition, Wrote, today};

pub use day::Day;

use crate::check::{Explored, Reached, explore, reach_the_end};
use crate::state::{Mark, Told};
use crate::suite::{Case, Flaw, Shows, Subject, Suite};
use crate::translate::holder_state;

/// The processes that make partitions.
///
/// The processes are the owner, the finder, and a slow process.
///
/// The finder finds the owner's lock. The physical name of a partition is the number of its maker,
/// plus one. [`UNASKED`] is a partition that the server makes by itself.
const PROCESSES: usize = 3;
const OWNER: usize = 0;
const FINDER: usize = 1;
const SLOW: usize = 2;
const UNASKED: u8 = 4;

/// The model.
#[derive(Clone, Debug)]
pub struct Drops {
    /// The rules of the protocol: all of them, or all but one.
    pub rules: Rules,
    /// How many answers come from a lagging node. The node does not know the partition.
    pub lags: u8,
    /// How many commits are late.
    pub late_writes: u8,
    /// How many moves of the watermark may vanish.
    pub vanishing: u8,
    /// How many janitors die before they finish.
    pub deaths: u8,
}

/// A step: its name, and the next state.
#[derive(Clone, Debug, PartialEq)]
pub struct Step(pub &'static str, Day);

impl Drops {
    fn lacks(&self, rule: Rule) -> bool {
        !self.rules.decides(rule)
    }

    fn requires_alias(&self) -> bool {
        !self.lacks(Rule::RequireAlias)
    }

    /// A process makes the partition.
    ///
    /// The steps are the collection, its name in the domain document, and the alias.
    fn make(&self, day: &Day, process: usize, steps: &mut Vec<Step>) {
        let name = u8::try_from(process + 1).unwrap_or_default();
        let mut to = *day;
        match day.making[process] {
            Maker::No | Maker::Gone => {}
            Maker::Ask => {
                let document = match self.lacks(Rule::TouchGone) {
                    true => day.domain.document(),
                    false => to.change(|_| {}),
                };
                // The naming follows all rules, and they say that the day is gone.
                to.making[process] = Maker::of(&Making::asked(&document, &Rules::all(), today()));
                steps.push(Step("asks the domain document", to));
            }
            Maker::Create => {
                to.partitions[process] = Partition { exists: true, ..Partition::default() };
                to.making[process] = Maker::Name;
                if self.lacks(Rule::OfficialBeforeAlias) && to.alias == 0 {
                    to.alias = name;
                }
                steps.push(Step("creates a partition", to));
            }
            Maker::Name => {
                let document = to.change(|document| {
                    document.name_partition(&self.rules, today(), &name.to_string());
                });
                let next = Making::named(&document, today());
                if next != Making::AddAlias(name.to_string()) {
                    to.partitions[process] = Partition::default();
                    to.alias = if to.alias == name { 0 } else { to.alias };
                }
                to.making[process] = Maker::of(&next);
                steps.push(Step("names its partition", to));
            }
            Maker::AddAlias(official) => {
                if to.partition(official).is_some() {
                    to.alias = official;
                    to.making[process] = Maker::No;
                } else {
                    to.making[process] = Maker::Ask;
                }
                steps.push(Step("adds the alias", to));
            }
        }
    }

    /// The owner commits, applies, finishes.
    fn owner(&self, day: &Day, steps: &mut Vec<Step>) {
        let mut to = *day;
        match (day.owner, day.making[OWNER]) {
            (Doing::Record, Maker::Gone) => {
                // The commit cannot happen any more, because the day is gone for good. The outcome
                // is unknown if the commit was sent before.
                to.owner = Doing::Over;
                to.told = if day.sent { Told::Nothing } else { Told::Failed };
                steps.push(Step("the owner gives up", to));
            }
            (Doing::Record, Maker::No) => {
                match to.write(&[Mark::Missing], Mark::Committed, self.requires_alias()) {
                    Wrote::Yes => (to.owner, to.told) = (Doing::Apply, Told::Committed),
                    Wrote::Missing => to.making[OWNER] = Maker::Ask,
                    Wrote::Blocked => return,
                    Wrote::Conflict => {
                        let alias = to.alias;
                        match to.partition(alias).map(|p| p.record) {
                            Some(Mark::Aborted) => {
                                (to.owner, to.told) = (Doing::Over, Told::Failed);
                            }
                            _ => (to.owner, to.told) = (Doing::Apply, Told::Committed),
                        }
                    }
                }
                steps.push(Step("the owner commits", to));
                if day.late_writes > 0 && !day.late {
                    let mut to = *day;
                    (to.late, to.sent, to.late_writes) = (true, true, day.late_writes - 1);
                    steps.push(Step("the owner's commit is under way", to));
                }
                if day.lags > 0 {
                    let mut to = *day;
                    (to.making[OWNER], to.lags) = (Maker::Ask, day.lags - 1);
                    steps.push(Step("a node that lags knows no partition, says the owner's", to));
                }
            }
            (Doing::Record, _) => self.make(day, OWNER, steps),
            (Doing::Apply, _) => {
                if to.document == Held::Locked {
                    to.document = Held::Applied;
                }
                to.owner = Doing::Finish;
                steps.push(Step("the owner applies", to));
            }
            (Doing::Finish, _) => {
                let mark = to.write(&[Mark::Committed, Mark::Finished], Mark::Finished, true);
                if matches!(mark, Wrote::Blocked) {
                    return;
                }
                to.owner = Doing::Over;
                steps.push(Step("the owner marks its record as finished", to));
            }
            (Doing::Void | Doing::Over, _) => {}
        }
    }

    /// A process that finds the lock, and takes the owner for dead.
    fn finder(&self, day: &Day, steps: &mut Vec<Step>) {
        let mut to = *day;
        match (day.finder, day.making[FINDER]) {
            (Doing::Record, Maker::Gone) => {
                to.finder = self.after(recovery(&self.rules, HolderState::Gone, false));
                steps.push(Step("the finder hears that the day is gone", to));
            }
            (Doing::Record, Maker::No) => {
                let found = to.partition(day.alias).map(|p| p.record);
                match found {
                    None => steps.push(Step("the finder finds no partition", self.not_found(day))),
                    Some(mark) => self.found(day, mark, steps),
                }
                if day.lags > 0 {
                    let lagging = Day { lags: day.lags - 1, ..self.not_found(day) };
                    steps.push(Step("the finder asks a node that lags", lagging));
                }
            }
            (Doing::Record, _) => self.make(day, FINDER, steps),
            (Doing::Apply, _) => {
                if to.document == Held::Locked {
                    to.document = Held::Applied;
                }
                to.finder = Doing::Finish;
                steps.push(Step("the finder applies", to));
            }
            (Doing::Finish, _) => {
                let mark = to.write(&[Mark::Committed, Mark::Finished], Mark::Finished, true);
                if matches!(mark, Wrote::Blocked) {
                    return;
                }
                to.finder = Doing::Over;
                steps.push(Step("the finder marks the record as finished", to));
            }
            (Doing::Void, _) => {
                if to.document == Held::Locked {
                    to.document = Held::AbortedByRecovery;
                }
                to.finder = Doing::Over;
                steps.push(Step("the finder takes the lock off", to));
            }
            (Doing::Over, _) => {}
        }
    }

    fn not_found(&self, day: &Day) -> Day {
        let mut to = *day;
        if self.lacks(Rule::MissingIsNotGone) {
            to.finder = self.after(recovery(&self.rules, HolderState::Gone, false));
        } else {
            to.making[FINDER] = Maker::Ask;
        }
        to
    }

    /// The step of the recovery table for the record.
    fn found(&self, day: &Day, mark: Mark, steps: &mut Vec<Step>) {
        let mut to = *day;
        let does = recovery(&self.rules, holder_state(mark), false);
        let (from, into) = match does {
            RecoveryStep::CreateAborted => (Mark::Missing, Mark::Aborted),
            RecoveryStep::SwapToAborted => (Mark::Pending, Mark::Aborted),
            _ => (mark, mark),
        };
        match to.write(&[from], into, self.requires_alias()) {
            Wrote::Yes => to.finder = self.after(does),
            Wrote::Missing => to.making[FINDER] = Maker::Ask,
            Wrote::Blocked | Wrote::Conflict => return,
        }
        steps.push(Step("the finder writes what recovery asks for", to));
    }

    fn after(&self, does: RecoveryStep) -> Doing {
        match does {
            RecoveryStep::RollForward | RecoveryStep::ApplyOrVoid => Doing::Apply,
            _ => Doing::Void,
        }
    }

    /// A janitor drops the day.
    fn drop_day(&self, day: &Day, janitor: usize, steps: &mut Vec<Step>) {
        let mut to = *day;
        let Janitor::At(step, version, name) = day.dropping[janitor] else {
            self.begin(day, janitor, steps);
            return;
        };
        let (mut next, what) = match step {
            Dropping::Block => {
                if let Some(partition) = to.partition(name) {
                    partition.blocked = true;
                }
                (step.next(&self.rules, true), "a janitor blocks the partition")
            }
            Dropping::Look => {
                let record = day.partitions[usize::from(name) - 1].record;
                let open = matches!(record, Mark::Pending | Mark::Committed);
                (step.next(&self.rules, !open), "a janitor scans the partition")
            }
            Dropping::MoveWatermark => {
                let stands =
                    version == Some(day.domain.version) || self.lacks(Rule::WatermarkBeforeBlock);
                if stands {
                    to.change(|document| document.drop_day(today()));
                }
                (step.next(&self.rules, stands), "a janitor moves the watermark, or cannot")
            }
            Dropping::NoteLift => {
                let mut noted = to.change(|_| {});
                noted.note_lift(&BTreeSet::from([today()]), "");
                let next = Dropping::noted(&noted, today(), "");
                (next, "a janitor asks again, and notes a lift if the day is not gone")
            }
            Dropping::Lift => {
                if let Some(partition) = to.partition(name) {
                    partition.blocked = false;
                }
                (step.next(&self.rules, true), "a lift arrives")
            }
            Dropping::Delete => {
                to.partitions[usize::from(name) - 1] = Partition::default();
                to.alias = if to.alias == name { 0 } else { to.alias };
                (step.next(&self.rules, true), "a janitor deletes the partition")
            }
            Dropping::Dropped | Dropping::Left => return,
        };
        to.dropping[janitor] = Janitor::at(next, version, name);
        steps.push(Step(what, to));
        if step == Dropping::MoveWatermark && next == Dropping::Delete && day.vanishing > 0 {
            next = step.next(&self.rules, false);
            to.durable = Some(day.domain);
            to.vanishing -= 1;
            to.dropping[janitor] = Janitor::at(next, version, name);
            steps.push(Step("a janitor moves the watermark, on the primary only", to));
        }
        if day.deaths > 0 {
            let mut to = *day;
            (to.dropping[janitor], to.deaths) = (Janitor::Idle, day.deaths - 1);
            steps.push(Step("a janitor dies, and another one takes its place", to));
        }
    }

    /// A janitor finds the work that is due for the day.
    fn begin(&self, day: &Day, janitor: usize, steps: &mut Vec<Step>) {
        let mut to = *day;
        let left = day.domain.dropping;
        if day.domain.dropped && to.partition(left).is_some() {
            to.change(|_| {});
            to.dropping[janitor] = Janitor::at(Dropping::Delete, None, left);
            steps.push(Step("a janitor finds a partition of a day that is gone", to));
            return;
        }
        if day.domain.dropped || day.domain.official == 0 {
            return;
        }
        let name = day.domain.official;
        if day.partitions[usize::from(name) - 1].blocked {
            let mut to = *day;
            to.dropping[janitor] = Janitor::at(Dropping::NoteLift, None, name);
            steps.push(Step("a janitor is hindered by a block", to));
        }
        let lifts = |janitor: &Janitor| matches!(janitor, Janitor::At(Dropping::Lift, ..));
        let known_for = day.dropping.iter().any(lifts).then_some(Duration::ZERO);
        if !may_drop(&self.rules, known_for) {
            return;
        }
        let version = Some(day.domain.version);
        to.dropping[janitor] = Janitor::at(Dropping::begin(&self.rules), version, name);
        steps.push(Step("a janitor reads the domain document", to));
    }

    /// Whether all work is done.
    #[must_use]
    pub fn is_over(&self, day: &Day) -> bool {
        let idle = day.dropping.iter().all(|d| *d == Janitor::Idle);
        idle && day.owner == Doing::Over
            && day.finder == Doing::Over
            && day.document != Held::Locked
    }
}

impl Model for Drops {
    type State = Day;
    type Action = Step;

    fn init_states(&self) -> Vec<Day> {
        // The slow process has read its clock, and is about to make the partition.
        let mut making = [Maker::No; PROCESSES];
        making[SLOW] = Maker::Ask;
        let Self { lags, late_writes, vanishing, deaths, .. } = *self;
        vec![Day { making, lags, late_writes, vanishing, deaths, ..Day::default() }]
    }

    fn actions(&self, day: &Day, steps: &mut Vec<Step>) {
        self.owner(day, steps);
        self.finder(day, steps);
        self.make(day, SLOW, steps);
        for janitor in 0..day.dropping.len() {
            self.drop_day(day, janitor, steps);
        }
        if day.late {
            let mut to = *day;
            to.late = false;
            let _ = to.write(&[Mark::Missing], Mark::Committed, self.requires_alias());
            steps.push(Step("the late commit lands, or finds nothing", to));
        }
        if let Some(durable) = day.durable {
            let mut to = *day;
            to.domain = durable;
            to.durable = None;
            steps.push(Step("the primary of the domain document crashes", to));
        }
        for Step(_, to) in steps.iter_mut() {
            *to = to.canonical();
        }
        steps.retain(|Step(_, to)| to != day);
    }

    fn next_state(&self, _: &Day, step: Step) -> Option<Day> {
        Some(step.1)
    }

    fn format_action(&self, step: &Step) -> String {
        step.0.to_owned()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a committed transaction's lock is not void", |_, day: &Day| {
                !(day.committed && day.document == Held::AbortedByRecovery)
            }),
            Property::always("what was told stays true", |_, day: &Day| match day.told {
                Told::Nothing => true,
                Told::Committed => day.committed,
                Told::Failed => !day.committed,
            }),
            Property::sometimes("the day is dropped", |_, day: &Day| day.domain.dropped),
            Property::sometimes("committed, applied, dropped", |_, day: &Day| {
                day.told == Told::Committed && day.document == Held::Applied && day.domain.dropped
            }),
            Property::sometimes("everything ends", |model: &Self, day| model.is_over(day)),
        ]
    }
}

impl Subject for Drops {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn explore(&self) -> Explored {
        explore(self.clone())
    }

    fn reach_the_end(&self) -> Reached {
        reach_the_end(self, |state| self.is_over(state))
    }
}

/// The model with its broken variants.
#[must_use]
pub fn suite() -> Suite {
    let drops = Drops { rules: Rules::all(), lags: 1, late_writes: 1, vanishing: 1, deaths: 1 };
    let case = |bounds, drops, states, large| Case {
        name: "one day, three makers, two janitors",
        bounds,
        subject: Arc::new(drops),
        states,
        ends: true,
        large,
    };
    let (no_death, no_lag) =
        (Drops { deaths: 0, ..drops.clone() }, Drops { lags: 0, ..drops.clone() });
    let cases = vec![
        case("1 late commit, 1 lagging answer, 1 vanishing watermark", no_death, 1_152_803, false),
        case("1 late commit, 1 vanishing watermark, 1 dead janitor", no_lag, 1_087_985, false),
        case("all of these together", drops.clone(), 2_526_424, true),
    ];
    let without = |rule, left_out| Flaw {
        rule,
        subject: Arc::new(Drops { rules: Rules::without(left_out), ..drops.clone() }),
        shows: Shows::Wrong,
    };
    Suite {
        name: "partition_drop",
        cases,
        flaws: vec![
            without(
                "a partition is dropped only when nothing in it is open",
                Rule::DropOnlyResolved,
            ),
            without("a missing partition is no knowledge", Rule::MissingIsNotGone),
            without("official first, then the alias", Rule::OfficialBeforeAlias),
            without("no partition of a day that is gone becomes official", Rule::DroppedThrough),
            without("writes require the alias", Rule::RequireAlias),
            without("a write block before the scan", Rule::BlockBeforeDrop),
            without(
                "the watermark is moved on the version read before the block",
                Rule::WatermarkBeforeBlock,
            ),
            without("gone is said by a touch of the domain document", Rule::TouchGone),
            without("a day is not dropped while a lift may be under way", Rule::LiftSettles),
        ],
    }
}
