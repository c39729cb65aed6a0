//! The steps that one actor can take in a state.

use std::fmt;

use txn_protocol::rule::Rule;

use crate::advance::advance;
use crate::scenario::Scenario;
use crate::state::{Body, Doc, ForeignApply, Message, Rec, Who, World, attempt_of, txn_of};

/// The actor of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The owner of a transaction.
    Owner(usize),
    /// A janitor.
    Janitor(usize),
    /// The store and the network.
    Store,
}

/// The object of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// No object.
    Nothing,
    /// A document.
    Doc(usize),
    /// The record of an attempt.
    Rec(Who),
}

/// The description of a step, printed in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The actor.
    pub actor: Actor,
    /// The action.
    pub verb: &'static str,
    /// The object.
    pub object: Object,
    /// The fault of the step, if there is one.
    pub how: &'static str,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.actor {
            Actor::Owner(t) => write!(f, "T{} ", t + 1)?,
            Actor::Janitor(j) => write!(f, "janitor {} ", j + 1)?,
            Actor::Store => {}
        }
        write!(f, "{}", self.verb)?;
        match self.object {
            Object::Nothing => {}
            Object::Doc(d) => write!(f, " d{d}")?,
            Object::Rec(who) => write!(f, " T{}.{}", txn_of(who) + 1, attempt_of(who))?,
        }
        write!(f, "{}", self.how)
    }
}

/// A step and the next state.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The description.
    pub label: Label,
    /// The next state.
    pub to: World,
}

/// The fault of an applied write with a refusal as answer.
const REFUSED: &str = ", refused though it is applied";

/// The steps of one actor.
pub(crate) struct Turn<'a> {
    /// The rules of the model.
    pub(crate) scenario: &'a Scenario,
    /// The state.
    pub(crate) world: &'a World,
    pub(crate) actor: Actor,
    /// The steps found.
    pub(crate) steps: &'a mut Vec<Step>,
}

impl Turn<'_> {
    /// Whether a rule is left out.
    #[must_use]
    pub(crate) fn lacks(&self, rule: Rule) -> bool {
        self.scenario.lacks(rule)
    }

    /// The actor's present work on a foreign transaction.
    #[must_use]
    pub(crate) fn foreign(&self) -> ForeignApply {
        match self.actor {
            Actor::Owner(t) => self.world.txns[t].foreign,
            Actor::Janitor(j) => self.world.janitors[j].foreign,
            Actor::Store => ForeignApply::default(),
        }
    }

    /// Whether the abort of an attempt was acknowledged to this actor.
    #[must_use]
    pub(crate) fn knows(&self, who: Who) -> bool {
        let knows = match self.actor {
            Actor::Owner(t) => self.world.txns[t].knows,
            Actor::Janitor(j) => self.world.janitors[j].knows,
            Actor::Store => 0,
        };
        knows & (1 << (who - 1)) != 0
    }

    /// A step without a request, or a read.
    pub(crate) fn go(
        &mut self,
        verb: &'static str,
        object: Object,
        change: impl FnOnce(&mut World),
    ) {
        let mut to = *self.world;
        change(&mut to);
        self.push(verb, object, "", to);
    }

    fn push(&mut self, verb: &'static str, object: Object, how: &'static str, mut to: World) {
        if let Actor::Owner(t) = self.actor {
            advance(self.scenario, &mut to, t);
        }
        let label = Label { actor: self.actor, verb, object, how };
        self.steps.push(Step { label, to: to.canonical() });
    }

    /// A conditional write, with all its outcomes.
    ///
    /// `answered` takes the acknowledged version, or none after a conflict or without an answer.
    pub(crate) fn send(
        &mut self,
        verb: &'static str,
        message: Message,
        answered: impl Fn(&mut World, Option<u8>),
    ) {
        let object = match message.body {
            Body::Doc(d, _) => Object::Doc(d),
            Body::Rec(who, _) => Object::Rec(who),
        };
        let budget = self.world.budget;
        if self.world.holds(&message) {
            let mut to = *self.world;
            let version = to.carry_out(message.body, false);
            answered(&mut to, Some(version));
            if budget.forks > 0 && message.expected == 0 {
                let mut forked = to;
                forked.budget.forks -= 1;
                if forked.post(message) {
                    self.push(verb, object, ", forked", forked);
                }
            }
            self.push(verb, object, "", to);
            if budget.refused > 0 {
                let mut to = *self.world;
                to.budget.refused -= 1;
                to.carry_out(message.body, false);
                answered(&mut to, None);
                self.push(verb, object, REFUSED, to);
            }
            if budget.dirty > 0 {
                let mut to = *self.world;
                to.budget.dirty -= 1;
                to.carry_out(message.body, true);
                answered(&mut to, None);
                self.push(verb, object, " on the primary only, no answer", to);
            }
        } else {
            let mut to = *self.world;
            answered(&mut to, None);
            self.push(verb, object, ": conflict", to);
        }
        if budget.late > 0 {
            let mut to = *self.world;
            to.budget.late -= 1;
            if to.post(message) {
                answered(&mut to, None);
                self.push(verb, object, ", late, no answer", to);
            }
        }
    }

    /// Makes an owner take a refusal for a proof that nothing happened.
    pub(crate) fn believes_refusals(&mut self, t: usize, believes: impl Fn(&mut World)) {
        let mine = |step: &&mut Step| step.label.actor == Actor::Owner(t);
        for step in self.steps.iter_mut().filter(mine).filter(|s| s.label.how == REFUSED) {
            believes(&mut step.to);
        }
    }

    /// Replaces or creates a document, on its present version.
    pub(crate) fn put_doc(
        &mut self,
        verb: &'static str,
        d: usize,
        doc: Doc,
        answered: impl Fn(&mut World, Option<u8>),
    ) {
        let expected = self.world.docs[d].now.version;
        self.send(verb, Message { expected, body: Body::Doc(d, doc) }, answered);
    }

    /// Replaces or creates a record, on its present version.
    pub(crate) fn put_rec(
        &mut self,
        verb: &'static str,
        who: Who,
        rec: Rec,
        answered: impl Fn(&mut World, Option<u8>),
    ) {
        let expected = self.world.rec(who).version;
        self.send(verb, Message { expected, body: Body::Rec(who, rec) }, answered);
    }
}

/// The actor's work on a foreign transaction, in the next state.
pub(crate) fn foreign_of(world: &mut World, actor: Actor) -> Option<&mut ForeignApply> {
    match actor {
        Actor::Owner(t) => Some(&mut world.txns[t].foreign),
        Actor::Janitor(j) => Some(&mut world.janitors[j].foreign),
        Actor::Store => None,
    }
}

/// Notes that the actor knows the abort of an attempt.
///
/// An acknowledged write proved the abort.
pub(crate) fn learn(world: &mut World, actor: Actor, who: Who) {
    let bit = 1 << (who - 1);
    match actor {
        Actor::Owner(t) => world.txns[t].knows |= bit,
        Actor::Janitor(j) => world.janitors[j].knows |= bit,
        Actor::Store => {}
    }
}
