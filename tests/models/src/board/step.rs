//! A step of a process: board polls and writes, then locks.

use txn_protocol::board::{DocumentSet, Look, Node, Slot, Work, Written};
use txn_store::Version;

use super::world::{Flight, NOW, Phase, World, documents, hash, number};
use super::{Contest, LeftOut};

/// The lease of a dead process in rounds: longer than the patience.
pub(super) const LEASE: u8 = 12;

/// The fate of the requests of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Each request is answered.
    Sound,
    /// The poll has no answer. The write arrives and has no answer.
    Lost,
    /// The poll is answered one step later. The write has no answer, and lands at any later time.
    Late,
}

impl Contest {
    /// Takes one step of a process.
    pub(super) fn act(&self, world: &mut World, p: usize, fate: Fate) {
        self.take_look(world, p, fate);
        self.update(world, p);
        self.write_board(world, p, fate);
        self.send_look(world, p);
        self.use_documents(world, p);
        let process = &mut world.processes[p];
        process.pause = self.periods[p];
        let ticket = process.policy.ticket().unwrap_or(process.most);
        world.has_shrunk |= ticket < process.most;
        process.most = process.most.max(ticket);
    }

    fn take_look(&self, world: &mut World, p: usize, fate: Fate) {
        let is_unreachable = world.is_unreachable;
        let process = &mut world.processes[p];
        let Some(look) = process.look.take() else { return };
        if is_unreachable || fate == Fate::Lost {
            process.policy.look_failed(NOW);
        } else if fate == Fate::Late {
            process.look = Some(look);
        } else {
            let slots = self.read(process.node, process.policy.ticket(), look.slots);
            process.policy.observe(Look { slots, sent_at: look.sent_at }, NOW);
        }
    }

    /// The slots as the process takes them in.
    pub(super) fn read(
        &self,
        node: u64,
        ticket: Option<u64>,
        mut slots: Vec<(Slot, Option<Version>)>,
    ) -> Vec<(Slot, Option<Version>)> {
        if self.left_out == LeftOut::Ties {
            let others = slots.iter_mut().filter_map(|(slot, _)| slot.wish.as_mut());
            for (_, entry) in others.filter(|(other, _)| *other != Node(node)) {
                entry.ticket += u64::from(Some(entry.ticket) == ticket);
            }
        }
        slots
    }

    fn update(&self, world: &mut World, p: usize) {
        let process = &mut world.processes[p];
        let is_locking = process.phase == Phase::Wants && process.held != 0;
        let is_under_way = process.held != 0;
        let has_work = process.phase == Phase::Wants;
        let wanted: DocumentSet =
            documents(if has_work { self.sets[p] } else { 0 }).map(hash).collect();
        let work = Work {
            wanted,
            clients: u32::from(has_work || is_under_way) * self.clients[p],
            passed_over_since: process.passed_over_since,
            is_locking,
            is_under_way,
        };
        process.policy.update(work, NOW);
        process.policy.take_arrival();
    }

    fn write_board(&self, world: &mut World, p: usize, fate: Fate) {
        let Some(write) = world.processes[p].policy.take_write(NOW) else { return };
        let answer = if world.is_unreachable {
            Written::Unknown
        } else if fate == Fate::Late {
            world.late = Some(write);
            Written::Unknown
        } else {
            match world.write(write) {
                _ if fate == Fate::Lost => Written::Unknown,
                Some(version) => Written::At(version),
                None => Written::Conflict,
            }
        };
        world.processes[p].policy.written(answer, NOW);
    }

    fn send_look(&self, world: &mut World, p: usize) {
        let policy = &mut world.processes[p].policy;
        if policy.next_look(NOW).is_none_or(|at| at > NOW) {
            return;
        }
        policy.look_sent();
        let mut slots = world.slots.clone();
        slots.resize(policy.slots(), (Slot::default(), None));
        world.processes[p].look = Some(Flight { slots, sent_at: NOW });
    }

    fn use_documents(&self, world: &mut World, p: usize) {
        let must_wait = self.must_wait(world, p);
        let process = &mut world.processes[p];
        match process.phase {
            Phase::Wants if process.is_wounded => {
                (process.is_wounded, process.held) = (false, 0);
                self.is_passed_over(world, p);
            }
            Phase::Wants if process.held == self.sets[p] => {
                process.policy.committed(NOW);
                (process.phase, process.passed) = (Phase::Committed, 0);
                process.passed_over_since = None;
            }
            Phase::Wants if must_wait => {
                if self.left_out != LeftOut::EmptyHands {
                    world.release(p);
                    world.processes[p].held = 0;
                }
            }
            Phase::Wants => self.lock_next(world, p),
            Phase::Committed => self.apply_or_go_on(world, p),
            Phase::Rests => process.phase = Phase::Wants,
            Phase::Dead => {}
        }
    }

    /// Whether the board refuses a document that the process needs.
    pub(super) fn must_wait(&self, world: &World, p: usize) -> bool {
        let process = &world.processes[p];
        let mut open = documents(self.sets[p] & !process.held);
        let is_refused = open.any(|document| !process.policy.may_lock(hash(document), NOW));
        is_refused && self.left_out != LeftOut::Order
    }

    fn is_passed_over(&self, world: &mut World, p: usize) {
        let process = &mut world.processes[p];
        process.policy.met_another(NOW);
        process.passed_over_since.get_or_insert(NOW);
    }

    /// Locks the next document, or resolves its holder.
    fn lock_next(&self, world: &mut World, p: usize) {
        let open = documents(self.sets[p] & !world.processes[p].held);
        // Odd processes lock in the opposite order.
        let Some(document) = (if p.is_multiple_of(2) { open.min() } else { open.max() }) else {
            return;
        };
        let holder = world.locks[document];
        let is_free = holder == 0 || self.left_out == LeftOut::Condition;
        if is_free {
            world.locks[document] = number(p);
            let process = &mut world.processes[p];
            process.held |= 1 << document;
            process.policy.locked(NOW);
            if process.held == self.sets[p] {
                self.count_turn(world, p);
            }
            return;
        }
        self.is_passed_over(world, p);
        let other = usize::from(holder - 1);
        let process = &mut world.processes[other];
        if process.phase == Phase::Dead {
            if process.lease == 0 {
                world.release(other);
            }
        } else if p < other && process.phase == Phase::Wants {
            process.is_wounded = true;
            world.release(other);
        }
    }

    /// Counts the turn of `p` in the waiting processes.
    ///
    /// These processes wait for the documents of `p`.
    fn count_turn(&self, world: &mut World, p: usize) {
        for (other, process) in world.processes.iter_mut().enumerate() {
            let waits = process.phase == Phase::Wants && process.held != self.sets[other];
            if other != p && waits && self.sets[other] & self.sets[p] != 0 {
                process.passed = (process.passed + 1).min(self.bound + 1);
            }
        }
    }

    /// Locks the next batch over the commit, or applies the commit.
    fn apply_or_go_on(&self, world: &mut World, p: usize) {
        let process = &mut world.processes[p];
        let policy = &mut process.policy;
        let may_lock = documents(self.sets[p]).all(|document| policy.may_lock(hash(document), NOW));
        let goes_on = !policy.must_yield() && may_lock;
        process.phase = Phase::Wants;
        if goes_on || self.left_out == LeftOut::Yield {
            policy.handed_over(NOW);
            policy.locked(NOW);
        } else {
            process.held = 0;
            world.release(p);
        }
    }
}
