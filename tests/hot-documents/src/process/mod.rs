//! A process: its transactions, its batches, its cache and its policy.
//!
//! The process is the engine in outline. Waiting transactions are merged into batches. A batch
//! locks its documents, writes one record, and leaves its documents in a hand-off table. The next
//! batch locks them over the commit, or an apply follows.

mod answers;
mod batch;
mod readers;
mod step;

use std::collections::BTreeMap;
use std::time::Duration;

use txn_protocol::board::{KeyHash, Node, Numbers, Policy};

use crate::network::{Purpose, Sending};
use crate::random::Random;
use crate::store::{Attempt, Document, Micros, Operation, millis};
use crate::workload::{Kind, ProcessSpec, Sale, Transaction};

pub use batch::Batch;
use batch::Phase;
use readers::Reader;

/// The round trip that a process assumes before its first request. The engine assumes the same.
const FIRST_GUESS: Duration = Duration::from_millis(2);

/// The effects of a process on the simulation.
#[derive(Debug)]
pub struct Context<'a> {
    /// The current time.
    pub now: Micros,
    /// The random numbers of the simulation.
    pub random: &'a mut Random,
    /// The processes that send heartbeats.
    pub is_alive: &'a [bool],
    /// Requests.
    pub sent: Vec<Sending>,
    /// Clients that send their next transactions.
    pub next: Vec<(Micros, usize)>,
    /// Transactions that committed.
    pub committed: Vec<Transaction>,
}

/// Numbers of the engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineNumbers {
    /// How long a process collects transactions after a commit.
    pub gather: Micros,
    /// The time after which a commit without a hand-off is applied.
    pub apply_after: Micros,
    /// The maximum number of concurrent batches, without those that wait.
    pub batches: usize,
    /// The number of round trips before a process wounds a younger holder.
    pub grace_round_trips: u32,
    /// The time without a heartbeat after which a holder is dead.
    pub lease: Micros,
    /// Bits of a document's hash: fewer than 32 to see collisions.
    pub hash_bits: u32,
    /// The number of reads of a read-only transaction before it locks.
    pub looks: u32,
}

impl Default for EngineNumbers {
    fn default() -> Self {
        Self {
            gather: 100,
            apply_after: 150,
            batches: 2,
            grace_round_trips: 5,
            lease: millis(1_000),
            hash_bits: 32,
            looks: 4,
        }
    }
}

/// The knowledge of the process about a document.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    document: Document,
    is_fresh: bool,
    /// The value if the holder of the lock is decided. The value is that of the commit, or the one
    /// before the abort.
    decided: Option<i64>,
    lock_since: Micros,
}

/// A document that is committed and not applied.
#[derive(Clone, Copy, Debug)]
struct Handoff {
    version: u64,
    value: i64,
    since: Micros,
}

/// One process.
#[derive(Debug)]
pub struct Process {
    /// The position among the processes.
    pub index: usize,
    /// The settings of the process.
    pub spec: ProcessSpec,
    /// The policy.
    pub policy: Policy,
    /// The sales of the clients.
    pub sales: Vec<Sale>,
    /// Until when the process is paused.
    pub paused_until: Micros,
    /// When the process wakes, if no event comes before.
    pub wake_at: Micros,
    /// Steps with a lock in which the process waited for the board.
    pub waits_with_locks: u64,
    /// The sizes of the committed batches.
    pub batch_sizes: (u64, u64),
    numbers: EngineNumbers,
    hashes: Vec<KeyHash>,
    pending: Vec<Transaction>,
    readers: BTreeMap<u64, Reader>,
    cache: Vec<Cached>,
    handoffs: BTreeMap<usize, Handoff>,
    batches: BTreeMap<u64, Batch>,
    is_busy: Vec<bool>,
    is_reading: Vec<bool>,
    number: u64,
    last_commit_at: Micros,
}

impl Process {
    /// Creates an idle process.
    #[must_use]
    pub fn new(
        index: usize,
        spec: ProcessSpec,
        documents: usize,
        numbers: EngineNumbers,
        policy: Numbers,
    ) -> Self {
        let mask = u32::MAX.checked_shl(32 - numbers.hash_bits).unwrap_or(0);
        let hash = |document: usize| {
            let hash = (document as u32 + 1).wrapping_mul(0x9e37_79b9);
            KeyHash::from_bits((hash ^ (hash >> 15)).wrapping_mul(0x85eb_ca6b) & mask)
        };
        let node = Node(1 + index as u64);
        Self {
            index,
            policy: Policy::new(node, FIRST_GUESS, policy),
            sales: vec![Sale::default(); spec.clients],
            spec,
            paused_until: 0,
            wake_at: Micros::MAX,
            waits_with_locks: 0,
            batch_sizes: (0, 0),
            numbers,
            hashes: (0..documents).map(hash).collect(),
            pending: Vec::new(),
            readers: BTreeMap::new(),
            cache: vec![Cached::default(); documents],
            handoffs: BTreeMap::new(),
            batches: BTreeMap::new(),
            is_busy: vec![false; documents],
            is_reading: vec![false; documents],
            number: 0,
            last_commit_at: 0,
        }
    }

    /// Starts a transaction of a client.
    pub fn start(&mut self, transaction: Transaction, cx: &mut Context<'_>) {
        if transaction.kind == Kind::ReadOnly {
            self.start_reader(transaction, cx);
            return;
        }
        self.pending.push(transaction);
        let gathered_at = self.last_commit_at + self.numbers.gather;
        if cx.now < gathered_at {
            self.wake(gathered_at);
        } else {
            self.step(cx);
        }
    }

    /// Returns the number of transactions without an answer.
    #[must_use]
    pub fn open_transactions(&self) -> usize {
        let running: usize = self.batches.values().map(|batch| batch.transactions.len()).sum();
        self.pending.len() + running + self.readers.len()
    }

    /// Returns when the oldest transaction without an answer started.
    #[must_use]
    pub fn oldest_start(&self) -> Option<Micros> {
        let running = self.batches.values().flat_map(|batch| &batch.transactions);
        let readers = self.readers.values().map(|reader| &reader.transaction);
        self.pending.iter().chain(running).chain(readers).map(|waits| waits.started_at).min()
    }

    fn may_lock(&self, document: usize, now: Micros) -> bool {
        self.policy.may_lock(self.hashes[document], duration(now))
    }

    fn met_another(&mut self, now: Micros) {
        if !self.spec.is_plain {
            self.policy.met_another(duration(now));
        }
    }

    fn round_trip(&self) -> Micros {
        micros(self.policy.round_trip())
    }

    fn wake(&mut self, at: Micros) {
        self.wake_at = self.wake_at.min(at);
    }

    /// Whether a document can be used without a read.
    fn is_known(&self, document: usize) -> bool {
        self.cache[document].is_fresh
            || self.is_busy[document]
            || self.handoffs.contains_key(&document)
    }

    fn learn(&mut self, index: usize, document: Document, now: Micros) {
        let cached = &mut self.cache[index];
        if document.version < cached.document.version {
            return;
        }
        if cached.document.lock != document.lock {
            cached.lock_since = now;
        }
        if cached.document != document {
            cached.decided = None;
        }
        cached.document = document;
        cached.is_fresh = true;
        if document.lock.is_some_and(|lock| lock.process != self.index) {
            self.met_another(now);
        }
    }

    /// Drops cached documents of which another process has the turn.
    ///
    /// Such documents change soon.
    fn forget_refused(&mut self, now: Micros) {
        if self.policy.is_dormant() {
            return;
        }
        for document in 0..self.cache.len() {
            if self.cache[document].is_fresh
                && !self.is_busy[document]
                && !self.may_lock(document, now)
            {
                self.cache[document].is_fresh = false;
            }
        }
    }

    /// Releases locks of a batch.
    fn release(&mut self, locks: &BTreeMap<usize, (u64, i64)>, cx: &mut Context<'_>) {
        let mut operations = Vec::new();
        for (document, (version, value)) in locks {
            self.is_busy[*document] = true;
            operations.push(unlocked(*document, *version, *value));
        }
        if !operations.is_empty() {
            self.send(Purpose::Apply, operations, cx);
        }
    }

    fn send(&self, purpose: Purpose, operations: Vec<Operation>, cx: &mut Context<'_>) {
        cx.sent.push(Sending { purpose, operations });
    }

    /// Adds a read of the board to other operations.
    ///
    /// The operations are reads, or the apply at the end of a turn.
    fn add_look(&self, operations: &mut Vec<Operation>) {
        if !self.policy.is_dormant() {
            operations.push(Operation::Look(self.policy.slots()));
        }
    }

    fn is_under_way(&self) -> bool {
        !self.batches.is_empty() || !self.handoffs.is_empty() || self.is_busy.contains(&true)
    }

    fn attempt(&self, number: u64, transactions: &[Transaction]) -> Attempt {
        let age = transactions.iter().map(|transaction| transaction.age).min().unwrap_or(0);
        Attempt { age, process: self.index, number }
    }

    fn is_running(&self, attempt: Attempt) -> bool {
        self.batches.values().any(|batch| batch.attempt == attempt)
    }

    fn is_locking(&self) -> bool {
        self.batches.values().any(|batch| {
            !batch.locks.is_empty()
                || matches!(batch.phase, Phase::Locking | Phase::Recording | Phase::Wounding)
        })
    }
}

/// Returns the operation of an apply or of a release.
///
/// A release is that of a lock.
fn unlocked(document: usize, over: u64, value: i64) -> Operation {
    Operation::Write { document, over, lock: None, value }
}

/// Returns a time of the policy.
#[must_use]
pub fn duration(micros: Micros) -> Duration {
    Duration::from_micros(micros)
}

fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}
