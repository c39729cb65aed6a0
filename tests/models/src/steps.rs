//! The model of the protocol.
//!
//! The steps of every actor in every state.

use stateright::{Model, Property};
use txn_protocol::rules::conflict::Requester;

use crate::properties;
use crate::protocol::Protocol;
use crate::state::{ATTEMPTS, Body, Doc, Mark, RECORDS, World};
use crate::turn::{Actor, Object, Step, Turn};

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.0.start().canonical()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let scenario = &self.0;
        for t in 0..scenario.scripts.len() {
            Turn { scenario, world, actor: Actor::Owner(t), steps: &mut *steps }.owner(t);
        }
        for j in 0..scenario.janitors {
            Turn { scenario, world, actor: Actor::Janitor(j), steps: &mut *steps }.janitor(j);
        }
        Turn { scenario, world, actor: Actor::Store, steps: &mut *steps }.store();
        steps.retain(|step| step.to != *world);
    }

    fn next_state(&self, _: &World, step: Step) -> Option<World> {
        Some(step.to)
    }

    fn format_action(&self, step: &Step) -> String {
        step.label.to_string()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.0)
    }
}

impl Turn<'_> {
    /// Resolves each lock and open record that the rules allow.
    fn janitor(&mut self, j: usize) {
        let Self { scenario, world, .. } = *self;
        if world.janitors[j].foreign.who > 0 {
            self.go_on(Requester::NonPreempting);
            return;
        }
        for holder in 1..=u8::try_from(scenario.scripts.len() * ATTEMPTS).unwrap_or_default() {
            let locked: Vec<usize> = world
                .docs
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.now.lock == holder)
                .map(|(d, _)| d)
                .collect();
            let mark = world.rec(holder).mark;
            let open = matches!(mark, Mark::Pending | Mark::Committed);
            if self.knows(holder) {
                for d in locked {
                    self.unlock(d, holder, None);
                }
            } else if open || !locked.is_empty() {
                self.meet(Requester::NonPreempting, holder);
            }
        }
    }

    /// An administrator makes the collection of the first document again.
    ///
    /// The collection is dropped before.
    ///
    /// Each document has a collection of its own.
    fn make_again(&mut self) {
        let d = 0;
        if self.world.budget.made_again == 0 {
            return;
        }
        let is_applied = |t: &usize| properties::comes_after(self.world, d, *t);
        let applied = (0..self.scenario.scripts.len()).filter(is_applied).map(|t| 1 << t).sum();
        self.go("an administrator drops and makes again the collection of", Object::Doc(d), |w| {
            w.budget.made_again -= 1;
            w.make_again(d, applied);
        });
    }

    /// A plain client rewrites a placeholder unchanged, or deletes it.
    fn meddle(&mut self, d: usize) {
        let (doc, budget) = (self.world.docs[d].now, self.world.budget);
        if !doc.absent {
            return;
        }
        if budget.moved > 0 {
            self.go("a plain client rewrites", Object::Doc(d), |w| {
                w.budget.moved -= 1;
                w.carry_out(Body::Doc(d, doc), false);
            });
        }
        if budget.removed > 0 {
            let gone = Doc { writer: doc.writer, ..Doc::default() };
            self.go("a plain client deletes", Object::Doc(d), |w| {
                w.budget.removed -= 1;
                w.carry_out(Body::Doc(d, gone), false);
            });
        }
    }

    /// Late writes land, primaries crash.
    fn store(&mut self) {
        let world = self.world;
        for (slot, message) in world.net.iter().enumerate() {
            let Some(message) = message else { continue };
            let object = match message.body {
                Body::Doc(d, _) => Object::Doc(d),
                Body::Rec(who, _) => Object::Rec(who),
            };
            let lands = world.holds(message);
            let verb = if lands { "a late write lands on" } else { "a late write is refused by" };
            self.go(verb, object, |w| {
                w.net[slot] = None;
                if lands {
                    w.carry_out(message.body, false);
                }
            });
        }
        self.make_again();
        for d in 0..world.docs.len() {
            self.meddle(d);
        }
        for d in (0..world.docs.len()).filter(|d| world.docs[*d].dirty) {
            self.go("the primary crashes that has", Object::Doc(d), |w| w.docs[d].crash());
        }
        for r in (0..RECORDS).filter(|r| world.recs[*r].dirty) {
            let who = u8::try_from(r + 1).unwrap_or_default();
            self.go("the primary crashes that has", Object::Rec(who), |w| w.recs[r].crash());
        }
    }
}
