//! What a model consists of: who does what, what may go wrong, and by which rules.

use txn_protocol::rule::{Rule, Rules};

use crate::state::{Budget, DOCS, Slot, TXNS, Txn, Who, World};

/// What a transaction does with a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// Nothing.
    #[default]
    No,
    /// Reads it.
    Read,
    /// Reads it and writes it.
    Put,
    /// Reads it and inserts it: it must not exist.
    Insert,
    /// Reads it and deletes it.
    Delete,
}

/// How a transaction works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Locks, validates, commits by one write of its record.
    #[default]
    Explicit,
    /// Reads and validates.
    ReadOnly,
    /// One lock-free read per document, or several that claim to be a snapshot.
    Reader,
    /// One document, one conditional write, no record.
    Single,
    /// Everything in one step: how others look to a transaction that is examined alone.
    Instant,
}

/// One transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Script {
    /// How it works.
    pub kind: Kind,
    /// What it does with each document.
    pub uses: [Use; DOCS],
    /// Whether it takes the documents in reverse order.
    pub reversed: bool,
    /// Whether it locks each document at its read, from the first attempt on.
    pub pessimistic: bool,
    /// Whether it gives locks back that it took at its reads, to take them again later.
    pub gives_back: bool,
    /// Whether it locks what it only reads.
    pub lock_reads: bool,
    /// The transaction that its caller waits for before it begins.
    pub after: Option<usize>,
    /// The transaction of the same process over whose commit it may lock, without waiting for the apply.
    pub over: Option<usize>,
    /// Whether it may write its record as `pending` first.
    pub heartbeat: bool,
}

impl Script {
    /// The documents in its order.
    pub fn documents(&self) -> impl Iterator<Item = usize> {
        let reversed = self.reversed;
        let uses = self.uses;
        (0..DOCS)
            .map(move |i| if reversed { DOCS - 1 - i } else { i })
            .filter(move |d| uses[*d] != Use::No)
    }

    /// Whether it locks at its reads.
    pub(crate) fn is_pessimistic(&self, txn: &Txn) -> bool {
        self.pessimistic || txn.attempt > 0 && self.kind == Kind::Explicit
    }

    /// Whether it writes anything.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.uses.iter().any(|u| matches!(u, Use::Put | Use::Insert | Use::Delete))
    }
}

/// When an owner may be taken for dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Death {
    /// Only when it is.
    #[default]
    Rightly,
    /// At any time: clocks and pauses are as bad as can be.
    Anytime,
}

/// A model of the protocol.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// Which documents exist at the beginning.
    pub exists: [bool; DOCS],
    /// Which documents carry the lock of an attempt that did not take it: a plain client copied one.
    pub strays: [Who; DOCS],
    /// The transactions, oldest first.
    pub scripts: Vec<Script>,
    /// How many recover what is left behind.
    pub janitors: usize,
    /// How many attempts a transaction has.
    pub attempts: u8,
    /// What may go wrong.
    pub budget: Budget,
    /// When an owner may be taken for dead.
    pub death: Death,
    /// The rules of the protocol: all of them, or all but one, to show that the model would notice.
    pub rules: Rules,
    /// Whether several reads without validation have to be a snapshot (they are not).
    pub snapshots: bool,
    /// Whether owners leave nothing behind, though nobody recovers it.
    pub tidy: bool,
    /// Whether the oldest transaction has to get through.
    pub oldest_commits: bool,
}

impl Scenario {
    /// The same without a rule.
    #[must_use]
    pub fn without(mut self, rule: Rule) -> Self {
        self.rules = Rules::without(rule);
        self
    }

    /// Whether a plain client meddles with placeholders, or an administrator with collections.
    #[must_use]
    pub fn meddles(&self) -> bool {
        self.budget.moved + self.budget.removed + self.budget.made_again > 0
    }

    /// Whether that rule is left out.
    #[must_use]
    pub fn lacks(&self, rule: Rule) -> bool {
        !self.rules.decides(rule)
    }

    /// How it begins.
    #[must_use]
    pub fn start(&self) -> World {
        assert!(self.scripts.len() <= TXNS, "too many transactions");
        let mut world = World { budget: self.budget, ..World::default() };
        for ((slot, exists), stray) in world.docs.iter_mut().zip(self.exists).zip(self.strays) {
            let mut doc = slot.now;
            doc.version = u8::from(exists || stray > 0);
            (doc.lock, doc.absent) = (stray, stray > 0 && !exists);
            doc.recent = u32::from(exists);
            *slot = Slot { now: doc, durable: doc, dirty: false };
        }
        for txn in world.txns.iter_mut().skip(self.scripts.len()) {
            txn.phase = crate::state::Phase::Done;
        }
        world
    }
}
