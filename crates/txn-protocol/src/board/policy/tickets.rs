//! Tickets, strides, and durations that depend on the other processes.

use std::time::Duration;

use super::{Policy, Wish};
use crate::board::document::{Entry, LAST_TICKET, Node, Ticket, micros};

impl Policy {
    /// How long a hand-off counts.
    ///
    /// After this time without a hand-off, the process no longer counts as one that hands documents
    /// off.
    pub(super) fn handoff_pause(&self) -> Duration {
        self.numbers.handoff_pause.max(self.round_trip * self.numbers.handoff_round_trips)
    }

    pub(super) fn blind_after(&self) -> Duration {
        self.numbers.blind_after.max(self.round_trip * self.numbers.blind_round_trips)
    }

    pub(super) fn is_blind(&self, now: Duration) -> bool {
        self.looked_at.is_none_or(|at| now > at + self.blind_after())
    }

    /// The duration of a full turn.
    pub(super) fn turn(&self, now: Duration) -> Duration {
        let processes = u32::try_from(self.live(now).count()).unwrap_or(u32::MAX).saturating_add(1);
        let longest = (self.numbers.longest_cycle / processes).max(self.numbers.longest_turn);
        let turn = self.fastest(now) * self.numbers.turn_round_trips;
        turn.clamp(self.numbers.shortest_turn, longest)
    }

    /// The own part of a full turn, by the number of clients.
    pub(super) fn own_turn(&self, now: Duration) -> Duration {
        let own = self.clients();
        let most = self.live(now).map(|(_, entry)| entry.clients).max().unwrap_or(1).max(own);
        let own_turn = self.turn(now).mul_f64(f64::from(own) / f64::from(most));
        // Several turns in each round are shorter. With full turns, the busy processes keep 0.62 of
        // their commits instead of 0.77.
        let stride = self.wish.as_ref().map_or(Ticket::MAX, |wish| wish.entry.stride);
        let share = stride as f64 / micros(self.turn(now)) as f64;
        own_turn.mul_f64(share.min(1.0))
    }

    /// How long other processes wait for a process in its turn.
    pub(super) fn patience(&self, round_trip: Duration, now: Duration) -> Duration {
        let turn = self.turn(now);
        let short = turn.min(self.numbers.longest_turn);
        (short * self.numbers.patience_turns + (turn - short))
            .max(round_trip.saturating_mul(self.numbers.patience_round_trips))
            .min(self.numbers.longest_patience)
    }

    pub(super) fn fastest(&self, now: Duration) -> Duration {
        let others = self.live(now).map(|(_, entry)| entry.round_trip).min();
        others.map_or(self.round_trip, |others| others.min(self.round_trip))
    }

    /// Whether a process is slow, compared with the fastest one.
    ///
    /// `round_trip` is that of the process.
    pub(super) fn is_slow(&self, round_trip: Duration, now: Duration) -> bool {
        round_trip > self.fastest(now).saturating_mul(self.numbers.slow_factor)
    }

    pub(super) fn clients(&self) -> u32 {
        let turn = self.wish.as_ref().map_or(self.last_clients, |wish| wish.most_clients);
        self.work.clients.max(turn).max(1)
    }

    /// Takes a new ticket, if none serves the process.
    ///
    /// A process takes a ticket for a first wish, after a turn, or after a turn without a lock.
    pub(super) fn take_ticket(&mut self, now: Duration) {
        let clients = self.clients();
        let stride = self.stride(clients, now);
        let start = self.virtual_time(now).max(self.last_ticket);
        let ticket = self.spaced(start.saturating_add(stride), stride, now);
        let set = match &self.wish {
            Some(wish) if self.work.wanted.is_empty() => wish.entry.set.clone(),
            _ => self.work.wanted.clone(),
        };
        self.yielding_since = None;
        self.last_clients = 0;
        if ticket > LAST_TICKET {
            self.wish = None;
            // Only a damaged slot leads so far, and counts until it is not renewed any more.
            if self.last_ticket > LAST_TICKET / 2 {
                self.last_ticket = 0;
            }
            return;
        }
        self.last_ticket = ticket;
        // The precision of the slot.
        let round_trip = Duration::from_micros(micros(self.round_trip));
        self.wish = Some(Wish {
            entry: Entry { ticket, stride, clients, round_trip, set },
            first_lock: None,
            has_committed: false,
            idle_head_since: None,
            has_arrived: false,
            most_clients: self.work.clients,
        });
    }

    /// The virtual time of the board.
    ///
    /// The virtual time is the latest one at which another process took its ticket.
    fn virtual_time(&self, now: Duration) -> Ticket {
        let taken = self.live(now).map(|(_, entry)| entry.ticket.saturating_sub(entry.stride));
        taken.max().unwrap_or(0)
    }

    /// Spaces the next ticket from those of processes with a similar stride.
    ///
    /// Otherwise equal processes have equal tickets. A process with a smaller stride then has all
    /// its turns of a round before them, and waits for the whole round. The p99 of a lone client
    /// next to four processes is then 26 times its p99 alone, instead of 16 times.
    fn spaced(&self, ticket: Ticket, stride: Ticket, now: Duration) -> Ticket {
        let is_similar = |other: Ticket| other > stride / 2 && other / 2 < stride;
        let mut tickets: Vec<Ticket> = self
            .live(now)
            .filter(|(_, entry)| is_similar(entry.stride))
            .map(|(_, entry)| entry.ticket)
            .collect();
        tickets.sort_unstable();
        let gap = stride / (tickets.len() as Ticket + 1);
        tickets.into_iter().fold(ticket, |ticket, other| {
            if ticket.abs_diff(other) < gap / 2 { other.saturating_add(gap) } else { ticket }
        })
    }

    /// The stride of a new ticket.
    ///
    /// A process with few clients or long round trips gets as many turns as its share needs.
    fn stride(&self, clients: u32, now: Duration) -> Ticket {
        let count = |counts: &dyn Fn(&Entry) -> bool| {
            let others = self.live(now).filter(|(_, entry)| counts(entry)).count();
            u32::try_from(others).unwrap_or(u32::MAX).max(1)
        };
        let own = self.round_trip;
        let is_faster = |entry: &Entry| entry.round_trip * 2 < own;
        let larger =
            count(&|entry| entry.clients >= clients.saturating_mul(2) && !is_faster(entry));
        let share = self.turn(now) / larger;
        if !self.is_slow(own, now) {
            return micros(share);
        }
        // Two slow processes share the turns that one slow process would have.
        let is_slow = |(_, entry): &(Node, &Entry)| self.is_slow(entry.round_trip, now);
        let slow_ones = self.live(now).filter(is_slow).count() as u32 + 1;
        let slow = own * self.numbers.slow_stride_round_trips * slow_ones / count(&is_faster);
        micros(share.max(slow))
    }
}
