//! A write of one document without a record.
//!
//! After a conflict or an unknown answer, the document's own list of commits tells whether the
//! write happened.

use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};
use txn_protocol::document::Image;
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::settle::{Machine, Settle, SingleOutcome, SingleWrite};
use txn_protocol::rule::{Rule, Rules};
use txn_protocol::rules::recent::recent_with;
use txn_protocol::rules::testing::commit_of;
use txn_protocol::rules::validate::Observed;

use crate::check::{Explored, Reached, explore, reach_the_end};
use crate::state::Told;
use crate::suite::{Case, Flaw, Shows, Subject, Suite};
use crate::translate::version;

const WRITERS: usize = 4;

/// The document: its version, its writers, and its list.
///
/// The writers are oldest first. The list names writers, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    version: u8,
    commits: [u8; WRITERS],
    /// The list: one bit for each writer. The list has the order of the commits. Writer 0 wrote the
    /// initial content.
    listed: u8,
}

/// The phase of a writer: reads, writes, settles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum At {
    /// The writer has not read.
    #[default]
    Start,
    /// The writer read this, and sends its write.
    Send(Content),
    /// The writer has no answer, and settles.
    Settle(Content),
    /// The writer is done.
    Over,
}

/// A write under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Late {
    writer: u8,
    /// The version of the condition.
    read: u8,
    written: Content,
}

/// A state of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    now: Content,
    durable: Option<Content>,
    writers: [At; WRITERS],
    told: [Told; WRITERS],
    /// A write with a lost answer.
    late: Option<Late>,
    late_writes: u8,
    vanishing: u8,
    refused: u8,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Single {
    /// The rules of the protocol: all of them, or all but one.
    pub rules: Rules,
    /// The process of each writer.
    pub processes: [u8; WRITERS],
    /// How many commits the document keeps.
    pub keeps: usize,
    /// How many writes are late.
    pub late_writes: u8,
    /// How many writes may vanish.
    pub vanishing: u8,
    /// How many writes are applied and answered with a refusal.
    pub refused: u8,
}

/// A step: the writer, the action, and the next state.
#[derive(Clone, Debug, PartialEq)]
pub struct Step(usize, &'static str, State);

impl Content {
    fn written(&self) -> impl Iterator<Item = u8> {
        self.commits.into_iter().filter(|writer| *writer > 0)
    }

    /// Adds a commit and its list.
    fn by(mut self, writer: usize, list: &[u8]) -> Self {
        let number = number(writer);
        if let Some(free) = self.commits.iter_mut().find(|commit| **commit == 0) {
            *free = number;
        }
        self.listed = list.iter().fold(0, |listed, writer| listed | 1 << writer);
        self
    }

    fn list(&self) -> impl Iterator<Item = u8> {
        let all = std::iter::once(0).chain(self.written());
        all.filter(|writer| self.listed & 1 << writer != 0)
    }
}

/// The number of a writer in a document. Writer 0 wrote the initial content.
fn number(writer: usize) -> u8 {
    u8::try_from(writer + 1).unwrap_or_default()
}

impl State {
    /// An acknowledged write, which also makes the content below durable.
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
        self.each(|version| most = most.max(*version));
        most + 1
    }

    /// Visits every version that an actor knows.
    fn each(&mut self, mut visit: impl FnMut(&mut u8)) {
        visit(&mut self.now.version);
        self.durable.iter_mut().for_each(|content| visit(&mut content.version));
        self.late.iter_mut().for_each(|late| visit(&mut late.read));
        for at in &mut self.writers {
            if let At::Send(content) | At::Settle(content) = at {
                visit(&mut content.version);
            }
        }
    }

    fn canonical(mut self) -> Self {
        let mut versions = Vec::new();
        self.each(|version| versions.push(*version));
        versions.sort_unstable();
        versions.dedup();
        self.each(|version| {
            let rank = versions.iter().position(|v| v == version).unwrap_or_default();
            *version = u8::try_from(rank).unwrap_or_default();
        });
        // The write has a version only once it lands.
        self.late.iter_mut().for_each(|late| late.written.version = 0);
        self
    }

    fn end(mut self, writer: usize, told: Told) -> Self {
        (self.writers[writer], self.told[writer]) = (At::Over, told);
        self
    }

    /// The content after a crash of the primary.
    fn lasting(&self) -> Content {
        self.durable.unwrap_or(self.now)
    }
}

impl Single {
    fn lacks(&self, rule: Rule) -> bool {
        !self.rules.decides(rule)
    }

    /// The commit version of a writer.
    fn tid(&self, number: u8) -> CommitVersion {
        let process = number.checked_sub(1).map(|writer| self.processes[usize::from(writer)]);
        commit_of(process.unwrap_or(u8::MAX), number)
    }

    fn view(&self, content: &Content) -> View {
        let recent = content.list().map(|number| self.tid(number)).collect();
        let last = content.written().last().unwrap_or_default();
        let tid = Some(self.tid(last));
        let stored =
            Stored { commit_version: tid, recent, image: Image::default(), ..Stored::default() };
        View::Present { version: version(content.version), source: "{}".into(), stored }
    }

    /// The content that a writer makes of its read.
    ///
    /// The writer's process shortens the list as it would at that time.
    fn written(&self, state: &State, writer: usize, read: Content) -> Content {
        let commit = self.tid(number(writer));
        let is_over = |tid: CommitVersion| {
            let mut writers = (0..WRITERS).filter(|writer| self.tid(number(*writer)) == tid);
            writers.all(|writer| state.writers[writer] == At::Over)
        };
        let is_known = |tid: CommitVersion| {
            tid.node() == commit.node() && (self.lacks(Rule::KeepInDoubt) || is_over(tid))
        };
        let recent: Vec<CommitVersion> = read.list().map(|number| self.tid(number)).collect();
        let list = recent_with(&recent, commit, is_known, Duration::ZERO);
        let named =
            |tid: &CommitVersion| (0..=number(WRITERS)).find(|number| self.tid(*number) == *tid);
        let list: Vec<u8> = list.iter().filter_map(named).collect();
        read.by(writer, &list[list.len().saturating_sub(self.keeps)..])
    }

    /// The conditional write, with all its outcomes.
    fn send(&self, state: &State, writer: usize, read: Content, steps: &mut Vec<Step>) {
        let written = self.written(state, writer, read);
        let unanswered = |mut to: State| {
            to.writers[writer] = At::Settle(read);
            to
        };
        if state.now.version == read.version {
            let mut to = *state;
            to.put(written);
            steps.push(Step(writer, "writes", to.end(writer, Told::Committed)));
            if state.refused > 0 {
                let mut to = *state;
                to.put(written);
                to.refused -= 1;
                let to = match self.lacks(Rule::RefusalInDoubt) {
                    true => to.end(writer, Told::Failed),
                    false => unanswered(to),
                };
                steps.push(Step(writer, "writes, refused though it is applied", to));
            }
            if state.vanishing > 0 {
                let mut to = *state;
                to.put_dirty(written);
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
        if state.late_writes > 0 && state.late.is_none() {
            let mut to = *state;
            (to.late, to.late_writes) = (
                Some(Late { writer: number(writer), read: read.version, written }),
                state.late_writes - 1,
            );
            steps.push(Step(writer, "writes, late, no answer", unanswered(to)));
        }
    }

    /// Settles a write by the document, once a touch is acknowledged.
    fn settle(&self, state: &State, writer: usize, read: Content, steps: &mut Vec<Step>) {
        let commit = self.tid(number(writer));
        let was = self.view(&read);
        let View::Present { stored, .. } = &was else { return };
        let (observed, recent) = (Observed::of(&was), &*stored.recent);
        let mut touched = *state;
        touched.put(state.now);
        let told = |outcome| match outcome {
            SingleOutcome::Committed => ("finds its commit", Told::Committed),
            SingleOutcome::Overtaken => ("finds another's commit", Told::Failed),
        };
        let machine = SingleWrite { rules: &self.rules, read: &observed, recent, commit };
        match machine.next(&self.view(&state.now)) {
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

    /// Whether all writers are done.
    #[must_use]
    pub fn is_over(&self, state: &State) -> bool {
        state.late.is_none() && state.writers.iter().all(|at| *at == At::Over)
    }
}

impl Model for Single {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let Self { late_writes, vanishing, refused, .. } = *self;
        let now = Content { listed: 1, ..Content::default() };
        vec![State { now, late_writes, vanishing, refused, ..State::default() }]
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
        if let Some(Late { writer, read, written }) = state.late {
            let mut to = *state;
            to.late = None;
            if state.now.version == read {
                to.put(written);
            }
            let writer = usize::from(writer).saturating_sub(1);
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
                let lasts =
                    |writer| state.lasting().written().filter(|w| *w == number(writer)).count();
                state.told.iter().enumerate().all(|(writer, told)| match told {
                    Told::Nothing => lasts(writer) <= 1,
                    Told::Committed => lasts(writer) == 1,
                    Told::Failed => lasts(writer) == 0,
                })
            }),
            Property::always("what became of it is found out", |model: &Self, state: &State| {
                let is_in_doubt = |at: (&At, &Told)| at == (&At::Over, &Told::Nothing);
                model.keeps <= 1 || !state.writers.iter().zip(&state.told).any(is_in_doubt)
            }),
            Property::sometimes("all writers commit", |_, state: &State| {
                state.told.iter().all(|told| *told == Told::Committed)
            }),
            Property::sometimes("a writer fails", |_, state: &State| {
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
    let long = Single {
        rules: Rules::all(),
        processes: [0, 0, 1, 1],
        keeps: WRITERS + 1,
        late_writes: 1,
        vanishing: 1,
        refused: 0,
    };
    let apart = Single { processes: [0, 1, 2, 3], ..long.clone() };
    let together = Single { processes: [0; WRITERS], ..long.clone() };
    let refused = Single { refused: 1, ..long.clone() };
    let case = |name, single, states| Case {
        name,
        bounds: "4 writers, 1 late, 1 vanishing",
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
            case("two processes with two writers each", long.clone(), 113_686),
            case("each writer a process", apart, 112_006),
            case("one process", together, 116_830),
            case("the list is too short", Single { keeps: 1, ..long.clone() }, 124_656),
            Case {
                bounds: "4 writers, 1 late, 1 vanishing, 1 refused",
                ..case("one write is applied and refused", refused.clone(), 319_998)
            },
        ],
        flaws: vec![
            without("the own commit in the list is touched", Rule::TouchOwnCommit),
            without("a later commit in the list is touched", Rule::TouchLaterCommit),
            without("a conflict is no proof of failure", Rule::SettleSingle),
            without("a commit in doubt stays in the list", Rule::KeepInDoubt),
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
