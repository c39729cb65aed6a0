//! The state of the model: the processes, the board and the locks.

use std::time::Duration;

use txn_protocol::board::{BoardWrite, KeyHash, Part, Policy, Slot, Ticket};
use txn_store::Version;

/// The number of documents.
pub(super) const DOCS: usize = 2;

/// The present moment in each state. Earlier moments move towards zero when time passes, so all
/// durations of the policies are shorter than this one.
pub(super) const NOW: Duration = Duration::from_millis(40);

/// The maximum distance between two tickets, more than the largest stride. Longer distances count
/// as this one.
const FAR: Ticket = 20_000;

/// The time of one step of a process with short round trips.
pub(super) const ROUND: Duration = Duration::from_millis(1);

/// The present work of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The process wishes its documents, and locks them one after the other.
    #[default]
    Wants,
    /// The commit is acknowledged, and not applied.
    Committed,
    /// The process has no work.
    Rests,
    /// The process stopped for good.
    Dead,
}

/// A poll with an answer under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    /// The slots in the answer.
    pub(super) slots: Vec<(Slot, Option<Version>)>,
    /// When the request was sent.
    pub(super) sent_at: Duration,
}

/// A process of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) policy: Policy,
    /// The number of the node.
    pub(super) node: u64,
    pub(super) phase: Phase,
    /// The documents that the process believes to have locked, one bit each.
    pub(super) held: u8,
    /// An older process aborted its transaction.
    pub(super) is_wounded: bool,
    pub(super) passed_over_since: Option<Duration>,
    pub(super) look: Option<Flight>,
    /// Rounds until its next step.
    pub(super) pause: u8,
    /// Rounds until the locks of the dead process are free.
    pub(super) lease: u8,
    /// Turns of other processes since this one waits.
    pub(super) passed: u8,
    /// The largest ticket of this node.
    pub(super) most: Ticket,
}

impl Process {
    pub(super) fn is_alive(&self) -> bool {
        self.phase != Phase::Dead
    }

    /// Whether the process holds a lock of a transaction.
    ///
    /// The transaction is not aborted.
    pub(super) fn holds(&self, document: usize) -> bool {
        self.is_alive() && !self.is_wounded && self.held & (1 << document) != 0
    }
}

/// The faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Requests to the board without an answer.
    pub lost: u8,
    /// Writes of the board that land at any later time.
    pub late: u8,
    /// Times at which the board loses all wishes.
    pub emptied: u8,
    /// Slots that are overwritten with an arbitrary wish.
    pub arbitrary: u8,
    /// Whether the board becomes unreachable for good.
    pub blackouts: u8,
    /// Processes that die.
    pub deaths: u8,
    /// Processes that start again after they died.
    pub restarts: u8,
    /// Pauses of a process.
    pub sleeps: u8,
    /// Times at which a process has no work.
    pub rests: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) processes: Vec<Process>,
    pub(super) slots: Vec<(Slot, Option<Version>)>,
    /// The holder of each document, plus one.
    pub(super) locks: [u8; DOCS],
    pub(super) late: Option<BoardWrite>,
    pub(super) budget: Budget,
    pub(super) is_unreachable: bool,
    /// Whether a node took a ticket below or at its last one.
    pub(super) has_shrunk: bool,
}

/// The hash of a document.
pub(super) fn hash(document: usize) -> KeyHash {
    KeyHash::from_bits(u32::try_from(document).unwrap_or_default())
}

/// The documents of a mask.
pub(super) fn documents(mask: u8) -> impl DoubleEndedIterator<Item = usize> {
    (0..DOCS).filter(move |document| mask & (1 << document) != 0)
}

impl World {
    /// A version that no process has seen.
    fn fresh(&mut self) -> Version {
        let mut most = 0;
        self.visit(&mut |part| {
            if let Part::Version(version) = part {
                most = most.max(version.seq_no);
            }
        });
        Version { incarnation: 0, term: 1, seq_no: most + 1 }
    }

    /// A write of the board arrives. The answer is the new version, or none after a conflict.
    pub(super) fn write(&mut self, write: BoardWrite) -> Option<Version> {
        if self.slots.len() <= write.number {
            self.slots.resize(write.number + 1, (Slot::default(), None));
        }
        if self.slots[write.number].1 != write.over {
            return None;
        }
        let version = self.fresh();
        self.slots[write.number] = (write.slot, Some(version));
        Some(version)
    }

    /// A slot has another content.
    pub(super) fn overwrite(&mut self, number: usize, slot: Slot) {
        let version = Some(self.fresh());
        if let Some(written) = self.slots.get_mut(number) {
            *written = (slot, version);
        }
    }

    /// Releases the locks of a process in the store.
    pub(super) fn release(&mut self, process: usize) {
        let holder = number(process);
        self.locks.iter_mut().filter(|lock| **lock == holder).for_each(|lock| *lock = 0);
    }

    /// Time passes until a process can take a step.
    pub(super) fn pass_time(&mut self) {
        let is_ready = |process: &Process| process.is_alive() && process.pause == 0;
        while self.processes.iter().any(Process::is_alive) && !self.processes.iter().any(is_ready) {
            for process in &mut self.processes {
                process.pause = process.pause.saturating_sub(1);
                process.lease = process.lease.saturating_sub(1);
            }
            self.visit(&mut |part| {
                if let Part::Time(moment) = part {
                    *moment = moment.saturating_sub(ROUND);
                }
            });
        }
    }

    /// Renames tickets and versions. Of versions only equality counts, and of tickets the order and
    /// short distances.
    pub(super) fn canonical(mut self) -> Self {
        let (mut tickets, mut versions) = (vec![0], Vec::new());
        self.visit(&mut |part| match part {
            Part::Time(_) => {}
            Part::Ticket(ticket) => tickets.push(*ticket),
            Part::Version(version) => versions.push(version.seq_no),
        });
        for numbers in [&mut tickets, &mut versions] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let mut renamed = vec![0];
        for pair in tickets.windows(2) {
            renamed.push(renamed[renamed.len() - 1] + (pair[1] - pair[0]).min(FAR));
        }
        self.visit(&mut |part| match part {
            Part::Time(_) => {}
            Part::Ticket(ticket) => {
                *ticket = renamed[tickets.partition_point(|other| *other < *ticket)];
            }
            Part::Version(version) => {
                version.seq_no = versions.partition_point(|other| *other < version.seq_no) as u64;
            }
        });
        self
    }

    fn visit(&mut self, visit: &mut dyn FnMut(Part<'_>)) {
        let slots = |slots: &mut Vec<(Slot, Option<Version>)>, visit: &mut dyn FnMut(Part<'_>)| {
            for (slot, version) in slots {
                slot.visit(visit);
                version.iter_mut().for_each(|version| visit(Part::Version(version)));
            }
        };
        slots(&mut self.slots, visit);
        if let Some(write) = &mut self.late {
            write.slot.visit(visit);
            write.over.iter_mut().for_each(|version| visit(Part::Version(version)));
        }
        for process in &mut self.processes {
            process.policy.visit(visit);
            visit(Part::Ticket(&mut process.most));
            process.passed_over_since.iter_mut().for_each(|moment| visit(Part::Time(moment)));
            if let Some(look) = &mut process.look {
                visit(Part::Time(&mut look.sent_at));
                slots(&mut look.slots, visit);
            }
        }
    }
}

/// The number of a process in the lock of a document.
pub(super) fn number(process: usize) -> u8 {
    u8::try_from(process + 1).unwrap_or_default()
}
