//! Polls of the board, and writes of the own slot.

use std::time::Duration;

use txn_store::Version;

use super::{BoardWrite, Policy, Written};
use crate::board::document::{MOST_SLOTS, Slot};

impl Policy {
    /// How many slots a poll reads.
    ///
    /// The first poll reads all slots, each later poll the used slots and two more.
    ///
    /// The first ticket depends on the number of other processes. With two slots, a slow process
    /// next to four fast ones saw two of them, and waited twice as long for its first turn.
    #[must_use]
    pub fn slots(&self) -> usize {
        if self.looked_at.is_none() {
            return MOST_SLOTS;
        }
        let used = self.slots.iter().rposition(|(slot, _)| slot.wish.is_some());
        let own = self.own_slot.map_or(0, |number| number + 1);
        (used.map_or(0, |number| number + 1).max(own) + 2).min(MOST_SLOTS)
    }

    /// When to poll the board next. `None` during a poll, or without work.
    #[must_use]
    pub fn next_look(&self, now: Duration) -> Option<Duration> {
        let due = self.next_look_of_a_board_that_answers(now)?;
        let pause = self.longest_look_pause();
        Some(self.failed_at.map_or(due, |at| due.max(at + pause)))
    }

    fn longest_look_pause(&self) -> Duration {
        self.numbers.blind_after / 4
    }

    fn next_look_of_a_board_that_answers(&self, now: Duration) -> Option<Duration> {
        if self.is_looking {
            return None;
        }
        if self.is_dormant() {
            let (since, last) = self.handoffs?;
            let pause = self.numbers.dormant_look;
            let due = self.looked_at.map_or(since, |at| at.max(since)) + pause;
            return (now < last + self.handoff_pause()).then_some(due);
        }
        let has_work =
            !self.work.wanted.is_empty() || self.work.is_under_way || self.wish.is_some();
        if !(has_work || self.must_write()) {
            return None;
        }
        let Some(at) = self.looked_at else { return Some(now) };
        if self.must_look {
            return Some(now);
        }
        let ahead = self.wish.as_ref().map_or(0, |wish| {
            let own = (wish.entry.ticket, self.node);
            self.live(now)
                .filter(|(node, entry)| {
                    (entry.ticket, *node) < own && entry.set.may_intersect(&self.work.wanted)
                })
                .count()
        });
        let pause = match u32::try_from(ahead).unwrap_or(u32::MAX) {
            0 => {
                let alone =
                    self.alone_since.map_or(Duration::ZERO, |since| at.saturating_sub(since));
                self.numbers.look_pause.max(alone / 4)
            }
            1 => self.round_trip / 4,
            ahead => self.turn(now).saturating_mul(ahead - 1) / 2,
        };
        let pause = self.round_trip + pause.min(self.longest_look_pause());
        Some(at + pause.max(self.numbers.shortest_look_pause))
    }

    /// The slot to write now, if there is one. [`Self::written`] takes the answer.
    pub fn take_write(&mut self, now: Duration) -> Option<BoardWrite> {
        let may_write = self.writing.is_none() && !self.must_look && self.looked_at.is_some();
        if !may_write || !self.must_write() {
            return None;
        }
        let number = match self.own_slot {
            Some(number) => number,
            None => self.free_slot(now)?,
        };
        let wish = self.wish.as_ref().map(|wish| (self.node, wish.entry.clone()));
        let over = self.slots.get(number).and_then(|(_, version)| *version);
        let write = BoardWrite { number, slot: Slot { wish }, over };
        self.writing = Some(write.clone());
        Some(write)
    }

    /// Takes the answer to a write of the board.
    pub fn written(&mut self, answer: Written, now: Duration) {
        let Some(write) = self.writing.take() else { return };
        match answer {
            Written::At(version) => {
                if self.slots.len() <= write.number {
                    self.slots.resize(write.number + 1, (Slot::default(), None));
                }
                self.slots[write.number] = (write.slot, Some(version));
                (self.own_slot, self.written_at) = (Some(write.number), Some(now));
            }
            Written::Conflict => self.must_look = true,
            Written::Unknown => (self.must_look, self.failed_at) = (true, Some(now)),
        }
    }

    /// Keeps the own slot if a poll shows an earlier state.
    ///
    /// Only own writes change the own slot. A poll that was sent before the answer to the last
    /// write may show less.
    pub(super) fn keep_later(
        &mut self,
        number: usize,
        known: (Slot, Option<Version>),
        sent_at: Duration,
    ) {
        let ticket = |slot: &Slot| match &slot.wish {
            Some((node, entry)) if *node == self.node => Some(entry.ticket),
            _ => None,
        };
        if self.slots.len() <= number {
            self.slots.resize(number + 1, (Slot::default(), None));
        }
        let is_earlier = ticket(&self.slots[number].0)
            .is_some_and(|shown| ticket(&known.0).is_some_and(|own| shown < own));
        if is_earlier || self.written_at.is_some_and(|at| sent_at < at) {
            self.slots[number] = known;
        }
    }

    /// The first free slot. A free slot has no wish, or the wish of a dead process.
    fn free_slot(&self, now: Duration) -> Option<usize> {
        let is_free = |(slot, _): &(Slot, Option<Version>)| {
            slot.wish.as_ref().is_none_or(|(node, _)| {
                *node == self.node
                    || self
                        .observed
                        .get(node)
                        .is_some_and(|observed| now > observed.since + self.numbers.dead_after)
            })
        };
        let number = self.slots.iter().position(is_free).unwrap_or(self.slots.len());
        (number < MOST_SLOTS).then_some(number)
    }

    /// Whether the own slot differs from the own wish.
    pub(super) fn must_write(&self) -> bool {
        let shown = self.own_slot.and_then(|number| self.slots.get(number));
        let shown = shown.and_then(|(slot, _)| slot.wish.as_ref()).map(|(_, entry)| entry);
        shown != self.wish.as_ref().map(|wish| &wish.entry)
    }
}
