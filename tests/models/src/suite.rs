//! What the models are made of: cases that have to be clean, and flaws that have to be found.

use std::fmt::Debug;
use std::sync::Arc;

use txn_protocol::rule::{Rule, Rules};

use crate::check::{CounterExample, Explored, Reached, explore, reach_the_end};
use crate::protocol::{Protocol, is_over};
use crate::scenario::Scenario;

/// Something that can be explored.
pub trait Subject: Debug + Send + Sync {
    /// The rules that it goes by.
    fn rules(&self) -> &Rules;

    /// Every state, until something fails.
    fn explore(&self) -> Explored;

    /// Every state, and from which the end can be reached.
    fn reach_the_end(&self) -> Reached;
}

impl Subject for Scenario {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn explore(&self) -> Explored {
        explore(Protocol(self.clone()))
    }

    fn reach_the_end(&self) -> Reached {
        reach_the_end(&Protocol(self.clone()), |world| is_over(self, world))
    }
}

/// A model within bounds, which has to be clean.
#[derive(Clone, Debug)]
pub struct Case {
    /// Who does what.
    pub name: &'static str,
    /// What may go wrong.
    pub bounds: &'static str,
    /// The model.
    pub subject: Arc<dyn Subject>,
    /// How many states it has: a model that lost some of them proves less than it says.
    pub states: usize,
    /// Whether the end has to be reachable from every state.
    pub ends: bool,
    /// Whether it is too large for every run of the tests.
    pub large: bool,
}

/// How a missing rule shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// A state that must not be.
    Wrong,
    /// A state from which the end cannot be reached.
    Stuck,
}

/// A rule that is left out, which has to be found.
#[derive(Clone, Debug)]
pub struct Flaw {
    /// The rule, in words.
    pub rule: &'static str,
    /// The model without it.
    pub subject: Arc<dyn Subject>,
    /// How that shows.
    pub shows: Shows,
}

impl Case {
    /// A case of the protocol.
    #[must_use]
    pub fn new(
        name: &'static str,
        bounds: &'static str,
        scenario: Scenario,
        states: usize,
    ) -> Self {
        Self { name, bounds, subject: Arc::new(scenario), states, ends: false, large: false }
    }

    /// Also from every state the end can be reached.
    #[must_use]
    pub fn ends(self) -> Self {
        Self { ends: true, ..self }
    }

    /// Too large for every run of the tests.
    #[must_use]
    pub fn large(self) -> Self {
        Self { large: true, ..self }
    }
}

impl Flaw {
    /// A scenario in which something breaks though every rule stands: a limit of what is promised.
    #[must_use]
    pub fn new(rule: &'static str, scenario: Scenario, shows: Shows) -> Self {
        Self { rule, subject: Arc::new(scenario), shows }
    }

    /// A scenario without one of its rules.
    #[must_use]
    pub fn of(rule: &'static str, scenario: &Scenario, left_out: Rule, shows: Shows) -> Self {
        Self { rule, subject: Arc::new(scenario.clone().without(left_out)), shows }
    }

    /// The rule that is left out, if it is one of the engine's.
    #[must_use]
    pub fn left_out(&self) -> Option<Rule> {
        self.subject.rules().left_out()
    }

    /// How often that rule was asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.subject.rules().asked()
    }

    /// The shortest way to what goes wrong.
    #[must_use]
    pub fn find(&self) -> Option<CounterExample> {
        match self.shows {
            Shows::Wrong => self.subject.explore().counter_example,
            Shows::Stuck => self.subject.reach_the_end().stuck.map(|(_, example)| example),
        }
    }
}

/// One model with its cases and flaws.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// Its cases.
    pub cases: Vec<Case>,
    /// Its flaws.
    pub flaws: Vec<Flaw>,
}
