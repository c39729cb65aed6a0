//! The parts of a model: transactions, faults and rules.

use txn_protocol::rule::{Rule, Rules};

use crate::state::{Budget, DOCS, Slot, TXNS, Txn, Who, World};

/// The operation of a transaction on a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// None.
    #[default]
    No,
    /// Reads the document.
    Read,
    /// Reads the document and writes it.
    Put,
    /// Reads the document and inserts it: it must not exist.
    Insert,
    /// Reads the document and deletes it.
    Delete,
}

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Locks, validates, commits by one write of its record.
    #[default]
    Explicit,
    /// Reads and validates.
    ReadOnly,
    /// A reader without locks. The reader has one read per document, or several reads that claim to
    /// be a snapshot.
    Reader,
    /// A single document, one conditional write, no record.
    Single,
    /// Everything in one step. The other transactions are under examination.
    Instant,
}

/// A transaction of the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Script {
    /// The kind of the transaction.
    pub kind: Kind,
    /// The operation on each document.
    pub uses: [Use; DOCS],
    /// Whether the transaction takes the documents in reverse order.
    pub reversed: bool,
    /// Whether the transaction locks each document at its read. The first attempt does so, too.
    pub pessimistic: bool,
    /// Whether the transaction releases and retakes locks of its reads.
    pub gives_back: bool,
    /// Whether the transaction locks documents that it only reads.
    pub lock_reads: bool,
    /// The transaction that its caller waits for before it begins.
    pub after: Option<usize>,
    /// The earlier transaction of the same process for hand-offs before its apply.
    pub over: Option<usize>,
    /// Whether the transaction may write its record as `pending` first.
    pub heartbeat: bool,
}

impl Script {
    /// The documents in the order of the transaction.
    pub fn documents(&self) -> impl Iterator<Item = usize> {
        let reversed = self.reversed;
        let uses = self.uses;
        (0..DOCS)
            .map(move |i| if reversed { DOCS - 1 - i } else { i })
            .filter(move |d| uses[*d] != Use::No)
    }

    /// Whether the transaction locks at its reads.
    pub(crate) fn is_pessimistic(&self, txn: &Txn) -> bool {
        self.pessimistic || txn.attempt > 0 && self.kind == Kind::Explicit
    }

    /// Whether the transaction writes a document.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.uses.iter().any(|u| matches!(u, Use::Put | Use::Insert | Use::Delete))
    }
}

/// When an owner may be taken for dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Death {
    /// Only if the owner is dead.
    #[default]
    Rightly,
    /// At any time: clocks and pauses are arbitrary.
    Anytime,
}

/// A model of the protocol.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The documents that exist at the start.
    pub exists: [bool; DOCS],
    /// The documents with the copied lock of an attempt. A plain client made the copy.
    pub orphans: [Who; DOCS],
    /// The transactions, oldest first.
    pub scripts: Vec<Script>,
    /// The number of janitors.
    pub janitors: usize,
    /// The number of attempts of a transaction.
    pub attempts: u8,
    /// The faults that may happen.
    pub budget: Budget,
    /// When an owner may be taken for dead.
    pub death: Death,
    /// The rules of the protocol: all of them, or all but one.
    ///
    /// A model must detect the omission.
    pub rules: Rules,
    /// Whether several unvalidated reads have to be a snapshot. Such reads are no snapshot.
    pub snapshots: bool,
    /// Whether owners leave nothing behind, without any recovery.
    pub tidy: bool,
    /// Whether the oldest transaction has to commit.
    pub oldest_commits: bool,
}

impl Scenario {
    /// The same scenario without a rule.
    #[must_use]
    pub fn without(mut self, rule: Rule) -> Self {
        self.rules = Rules::without(rule);
        self
    }

    /// Whether a plain client changes placeholders, or an administrator changes collections.
    #[must_use]
    pub fn meddles(&self) -> bool {
        self.budget.moved + self.budget.removed + self.budget.made_again > 0
    }

    /// Whether that rule is left out.
    #[must_use]
    pub fn lacks(&self, rule: Rule) -> bool {
        !self.rules.decides(rule)
    }

    /// The initial state.
    #[must_use]
    pub fn start(&self) -> World {
        assert!(self.scripts.len() <= TXNS, "too many transactions");
        let mut world = World { budget: self.budget, ..World::default() };
        for ((slot, exists), orphan) in world.docs.iter_mut().zip(self.exists).zip(self.orphans) {
            let mut doc = slot.now;
            doc.version = u8::from(exists || orphan > 0);
            (doc.lock, doc.absent) = (orphan, orphan > 0 && !exists);
            doc.recent = u32::from(exists);
            *slot = Slot { now: doc, durable: doc, dirty: false };
        }
        for txn in world.txns.iter_mut().skip(self.scripts.len()) {
            txn.phase = crate::state::Phase::Done;
        }
        world
    }
}
