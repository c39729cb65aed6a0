//! One document without a record: after a conflict or an unknown, the document's own list of commits tells
//! whether the write happened.

use std::sync::Arc;

use stateright::{Model, Property};
use txn_protocol::document::Image;
use txn_protocol::document::{Stored, View};
use txn_protocol::machines::settle::{Machine, Settle, SingleOutcome, SingleWrite};
use txn_protocol::rule::{Rule, Rules};
use txn_protocol::rules::validate::Observed;

use crate::check::{Explored, Reached, explore, reach_the_end};
use crate::state::Told;
use crate::suite::{Case, Flaw, Shows, Subject, Suite};
use crate::translate::{commit_tid, version};

const WRITERS: usize = 3;

/// The document: where it stands, and who wrote it, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    version: u8,
    commits: [u8; WRITERS],
}

/// A writer: reads, writes, settles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum At {
    /// It has not read.
    #[default]
    Start,
    /// It read this, and sends its write.
    Send(Content),
    /// It has no answer, and settles.
    Settle(Content),
    /// It is over.
    Over,
}

/// A state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    now: Content,
    durable: Option<Content>,
    writers: [At; WRITERS],
    told: [Told; WRITERS],
    /// Writes whose answer was lost: who sent them, on which content.
    late: Option<(u8, Content)>,
    lates: u8,
    vanishing: u8,
    refused: u8,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Single {
    /// The rules of the protocol: all of them, or all but one.
    pub rules: Rules,
    /// How many commits the document keeps.
    pub keeps: usize,
    /// How many writes are late.
    pub lates: u8,
    /// How many writes may vanish.
    pub vanishing: u8,
    /// How many writes are applied and answered with a refusal.
    pub refused: u8,
}

/// A step: who, what, and where it leads.
#[derive(Clone, Debug, PartialEq)]
pub struct Step(usize, &'static str, State);

/// The commit tid of a writer; 0 wrote the document at the beginning.
fn stamp(writer: u8) -> u8 {
    writer + 1
}

impl Content {
    fn written(&self) -> impl Iterator<Item = u8> {
        self.commits.into_iter().filter(|writer| *writer > 0)
    }

    fn by(mut self, writer: usize) -> Self {
        if let Some(free) = self.commits.iter_mut().find(|commit| **commit == 0) {
            *free = u8::try_from(writer + 1).unwrap_or_default();
        }
        self
    }

    fn view(&self, keeps: usize) -> View {
        let all: Vec<u8> = std::iter::once(0).chain(self.written()).collect();
        let recent = all.iter().rev().take(keeps).rev().map(|w| commit_tid(stamp(*w))).collect();
        let tid = all.last().map(|writer| commit_tid(stamp(*writer)));
        let stored = Stored { tid, recent, image: Image::default(), ..Stored::default() };
        View::Present { version: version(self.version), source: "{}".into(), stored }
    }
}

impl State {
    /// An acknowledged write; whatever was dirty below is durable with it.
    fn put(&mut self, mut content: Content) {
        content.version = self.fresh();
        (self.now, self.durable) = (content, None);
    }

    fn put_dirty(&mut self, mut content: Content) {
        content.version = self.fresh();
        self.durable = Some(self.durable.unwrap_or(self.now));
        self.now = content;
    }

    fn fresh(&mut self) -> u8 {
        let mut most = 0;
        self.each(|content| most = most.max(content.version));
        most + 1
    }

    fn each(&mut self, mut visit: impl FnMut(&mut Content)) {
        visit(&mut self.now);
        self.durable.iter_mut().for_each(&mut visit);
        self.late.iter_mut().for_each(|(_, content)| visit(content));
        for at in &mut self.writers {
            if let At::Send(content) | At::Settle(content) = at {
                visit(content);
            }
        }
    }

    fn canonical(mut self) -> Self {
        let mut versions = Vec::new();
        self.each(|content| versions.push(content.version));
        versions.sort_unstable();
        versions.dedup();
        self.each(|content| {
            let rank = versions.iter().position(|v| *v == content.version).unwrap_or_default();
            content.version = u8::try_from(rank).unwrap_or_default();
        });
        self
    }

    fn end(mut self, writer: usize, told: Told) -> Self {
        (self.writers[writer], self.told[writer]) = (At::Over, told);
        self
    }

    /// What is left when the primary crashes.
    fn lasting(&self) -> Content {
        self.durable.unwrap_or(self.now)
    }
}

impl Single {
    fn lacks(&self, rule: Rule) -> bool {
        !self.rules.decides(rule)
    }

    /// The conditional write, with everything that may become of it.
    fn send(&self, state: &State, writer: usize, read: Content, steps: &mut Vec<Step>) {
        let unanswered = |mut to: State| {
            to.writers[writer] = At::Settle(read);
            to
        };
        if state.now.version == read.version {
            let mut to = *state;
            to.put(read.by(writer));
            steps.push(Step(writer, "writes", to.end(writer, Told::Committed)));
            if state.refused > 0 {
                let mut to = *state;
                to.put(read.by(writer));
                to.refused -= 1;
                let to = match self.lacks(Rule::RefusalInDoubt) {
                    true => to.end(writer, Told::Failed),
                    false => unanswered(to),
                };
                steps.push(Step(writer, "writes, refused though it is applied", to));
            }
            if state.vanishing > 0 {
                let mut to = *state;
                to.put_dirty(read.by(writer));
                to.vanishing -= 1;
                steps.push(Step(writer, "writes on the primary only, no answer", unanswered(to)));
            }
        } else if self.lacks(Rule::SettleSingle) {
            steps.push(Step(
                writer,
                "takes a conflict for a failure",
                state.end(writer, Told::Failed),
            ));
        } else {
            steps.push(Step(writer, "is refused", unanswered(*state)));
        }
        if state.lates > 0 && state.late.is_none() {
            let mut to = *state;
            (to.late, to.lates) =
                (Some((u8::try_from(writer).unwrap_or_default(), read)), state.lates - 1);
            steps.push(Step(writer, "writes, late, no answer", unanswered(to)));
        }
    }

    /// What stands there tells, once a touch is acknowledged.
    fn settle(&self, state: &State, writer: usize, read: Content, steps: &mut Vec<Step>) {
        let commit = commit_tid(stamp(u8::try_from(writer + 1).unwrap_or_default()));
        let observed = Observed::of(&read.view(self.keeps));
        let mut touched = *state;
        touched.put(state.now);
        let told = |outcome| match outcome {
            SingleOutcome::Committed => ("finds its commit", Told::Committed),
            SingleOutcome::Overtaken => ("finds another's commit", Told::Failed),
        };
        let machine = SingleWrite { rules: &self.rules, read: &observed, commit };
        match machine.next(&state.now.view(self.keeps)) {
            Settle::Write(..) => {
                let mut to = *state;
                to.writers[writer] = At::Send(read);
                steps.push(Step(writer, "finds its condition still true", to));
            }
            Settle::Touch(_, outcome) => {
                let (what, told) = told(outcome);
                steps.push(Step(writer, what, touched.end(writer, told)));
            }
            Settle::Known(outcome) => {
                let (what, told) = told(outcome);
                steps.push(Step(writer, what, state.end(writer, told)));
            }
            Settle::Stuck => {
                steps.push(Step(writer, "cannot tell", state.end(writer, Told::Nothing)));
            }
        }
    }

    /// Whether everybody is done.
    #[must_use]
    pub fn is_over(&self, state: &State) -> bool {
        state.late.is_none() && state.writers.iter().all(|at| *at == At::Over)
    }
}

impl Model for Single {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let Self { lates, vanishing, refused, .. } = *self;
        vec![State { lates, vanishing, refused, ..State::default() }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (writer, at) in state.writers.iter().enumerate() {
            match at {
                At::Start => {
                    let mut to = *state;
                    to.writers[writer] = At::Send(state.now);
                    steps.push(Step(writer, "reads", to));
                }
                At::Send(read) => self.send(state, writer, *read, steps),
                At::Settle(read) => self.settle(state, writer, *read, steps),
                At::Over => {}
            }
        }
        if let Some((writer, read)) = state.late {
            let writer = usize::from(writer);
            let mut to = *state;
            to.late = None;
            if state.now.version == read.version {
                to.put(read.by(writer));
            }
            steps.push(Step(writer, "late write lands, or finds another version", to));
        }
        if let Some(durable) = state.durable {
            let crashed = State { now: durable, durable: None, ..*state };
            steps.push(Step(0, "primary crashes", crashed));
        }
        for Step(_, _, to) in steps.iter_mut() {
            *to = to.canonical();
        }
    }

    fn next_state(&self, _: &State, step: Step) -> Option<State> {
        Some(step.2)
    }

    fn format_action(&self, Step(writer, what, _): &Step) -> String {
        format!("W{} {what}", writer + 1)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what was told stays true", |_, state: &State| {
                let lasts = |writer| {
                    let number = u8::try_from(writer + 1).unwrap_or_default();
                    state.lasting().written().filter(|w| *w == number).count()
                };
                state.told.iter().enumerate().all(|(writer, told)| match told {
                    Told::Nothing => lasts(writer) <= 1,
                    Told::Committed => lasts(writer) == 1,
                    Told::Failed => lasts(writer) == 0,
                })
            }),
            Property::sometimes("everybody commits", |_, state: &State| {
                state.told.iter().all(|told| *told == Told::Committed)
            }),
            Property::sometimes("somebody fails", |_, state: &State| {
                state.told.contains(&Told::Failed)
            }),
            Property::sometimes("everything ends", |model: &Self, state| model.is_over(state)),
        ]
    }
}

impl Subject for Single {
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
    let long =
        Single { rules: Rules::all(), keeps: WRITERS + 1, lates: 1, vanishing: 1, refused: 0 };
    let refused = Single { refused: 1, ..long.clone() };
    let case = |name, single, states| Case {
        name,
        bounds: "3 writers, 1 late, 1 vanishing",
        subject: Arc::new(single),
        states,
        ends: true,
        large: false,
    };
    let without = |rule, left_out| Flaw {
        rule,
        subject: Arc::new(Single { rules: Rules::without(left_out), ..long.clone() }),
        shows: Shows::Wrong,
    };
    Suite {
        name: "one_document",
        cases: vec![
            case("the list goes back to the read", long.clone(), 6_006),
            case("the list is too short", Single { keeps: 1, ..long.clone() }, 6_717),
            Case {
                bounds: "3 writers, 1 late, 1 vanishing, 1 refused",
                ..case("one write is applied and refused", refused.clone(), 14_388)
            },
        ],
        flaws: vec![
            without("the own commit in the list is touched", Rule::TouchOwnCommit),
            without("a later commit in the list is touched", Rule::TouchLaterCommit),
            without("a conflict is no proof of failure", Rule::SettleSingle),
            Flaw {
                rule: "a refusal is no proof of failure",
                subject: Arc::new(Single {
                    rules: Rules::without(Rule::RefusalInDoubt),
                    ..refused
                }),
                shows: Shows::Wrong,
            },
        ],
    }
}
