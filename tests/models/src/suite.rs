//! The parts of a suite: cases and omissions of rules.
//!
//! All properties of a case must hold. A model must detect each omission.

use std::fmt::Debug;
use std::sync::Arc;

use txn_protocol::rule::{Rule, Rules};

use crate::check::{CounterExample, Explored, Reached, explore, reach_the_end};
use crate::protocol::{Protocol, is_over};
use crate::scenario::Scenario;

/// A subject of exploration.
pub trait Subject: Debug + Send + Sync {
    /// The rules in force.
    fn rules(&self) -> &Rules;

    /// Explores every state, until a property fails.
    fn explore(&self) -> Explored;

    /// Explores every state, and finds states without an end.
    ///
    /// The end cannot be reached from such a state.
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

/// A model within bounds, in which all properties must hold.
#[derive(Clone, Debug)]
pub struct Case {
    /// The transactions, in words.
    pub name: &'static str,
    /// The faults, in words.
    pub bounds: &'static str,
    /// The model.
    pub subject: Arc<dyn Subject>,
    /// The number of states. A model that lost some of them proves less than it claims.
    pub states: usize,
    /// Whether the end has to be reachable from every state.
    pub ends: bool,
    /// Whether the case is too large for every run of the tests.
    pub large: bool,
}

/// The effect of a missing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// A state that must not occur.
    Wrong,
    /// A state from which the end cannot be reached.
    Stuck,
}

/// The omission of a rule, which the model must detect.
#[derive(Clone, Debug)]
pub struct Flaw {
    /// The rule, in words.
    pub rule: &'static str,
    /// The model without the rule.
    pub subject: Arc<dyn Subject>,
    /// The effect of the omission.
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

    /// Requires that the end can be reached from every state.
    #[must_use]
    pub fn ends(self) -> Self {
        Self { ends: true, ..self }
    }

    /// Marks the case as too large for every run of the tests.
    #[must_use]
    pub fn large(self) -> Self {
        Self { large: true, ..self }
    }
}

impl Flaw {
    /// A scenario that fails under all rules: a limit of the guarantees.
    #[must_use]
    pub fn new(rule: &'static str, scenario: Scenario, shows: Shows) -> Self {
        Self { rule, subject: Arc::new(scenario), shows }
    }

    /// A scenario without one of its rules.
    #[must_use]
    pub fn of(rule: &'static str, scenario: &Scenario, left_out: Rule, shows: Shows) -> Self {
        Self { rule, subject: Arc::new(scenario.clone().without(left_out)), shows }
    }

    /// The omitted rule.
    ///
    /// `None` if the rule is none of the engine.
    #[must_use]
    pub fn left_out(&self) -> Option<Rule> {
        self.subject.rules().left_out()
    }

    /// How often that rule was asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.subject.rules().asked()
    }

    /// The shortest path to the failure.
    #[must_use]
    pub fn find(&self) -> Option<CounterExample> {
        match self.shows {
            Shows::Wrong => self.subject.explore().counter_example,
            Shows::Stuck => self.subject.reach_the_end().stuck.map(|(_, example)| example),
        }
    }
}

/// A model with its cases and omissions.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The name.
    pub name: &'static str,
    /// The cases.
    pub cases: Vec<Case>,
    /// The omissions.
    pub flaws: Vec<Flaw>,
}
