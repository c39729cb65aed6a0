//! What a model consists of: who does what, and what may go wrong. And the rules that can be broken, to show
//! that the models would notice.

use crate::state::{Budget, DOCS, Slot, TXNS, Who, World};

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
    /// Sends its staged record with its locks.
    Parallel,
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
    /// Whether it locks what it only reads.
    pub lock_reads: bool,
    /// The transaction that its caller waits for before it begins.
    pub after: Option<usize>,
    /// Whether its content may not fit: a dry run fails.
    pub may_misfit: bool,
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

    /// Those that it writes.
    pub fn written(&self) -> impl Iterator<Item = usize> {
        let uses = self.uses;
        self.documents().filter(move |d| uses[*d] != Use::Read)
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

/// A rule that is left out. Each must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A placeholder counts at any version.
    PlaceholderAtAnyVersion,
    /// An `aborted` record that was only seen makes locks void.
    TrustSeenAborted,
    /// An own lock that was only seen counts as taken.
    TrustSeenLock,
    /// An own `committed` record that was only seen is acknowledged to the caller.
    TrustSeenCommitted,
    /// `finished` is written though a write of the apply was not acknowledged.
    FinishUnacknowledged,
    /// Reads are validated before the locks are taken.
    ValidateBeforeLocks,
    /// Reads are not validated.
    NoValidation,
    /// Absences are verified like versions, however many.
    VerifyAbsences,
    /// An absence is verified after the versions.
    AbsenceLast,
    /// A read-only transaction takes what an undecided lock covers for valid.
    IgnoreUndecided,
    /// Locks that were only taken to read are not verified after the last was taken.
    LocksUnverified,
    /// Content counts as later than a commit only if its commit tid is larger.
    LaterByTid,
    /// Whoever applies waits for those who locked the document since.
    HelperWaits,
    /// An older transaction waits for a younger one instead of wounding it.
    NobodyWounds,
    /// A lock is replaced before its holder's abort is acknowledged.
    TakeOverUndecided,
    /// A staged transaction is aborted without a fence.
    NoFence,
    /// A document past the expected version counts as fenced without a touch.
    PastIsFenced,
    /// A fence waits for whoever holds the document.
    FenceWaits,
    /// A staged transaction is committed on locks that were only seen.
    CommitSeenLocks,
    /// A reader takes a staged record with every lock in place for committed.
    ReaderDecides,
    /// A reader takes a missing lock for undecided without reading the record again.
    ReaderLooksOnce,
    /// The owner tells of a failed bulk before its record is decided.
    TellFirst,
    /// The owner acknowledges though a dry run failed.
    IgnoreDryRun,
    /// A transaction with inserts is staged.
    ParallelInserts,
    /// A placeholder is touched by a fence.
    FencePlaceholder,
    /// A lock that the committed record of its holder does not name stays.
    StrayStays,
    /// A commit that was refused counts as not sent.
    RefusedCommitIsUnsent,
    /// A lock that was refused is not in doubt.
    RefusedLockIsCertain,
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
    /// The rule that is left out.
    pub broken: Option<Broken>,
    /// Whether several reads without validation have to be a snapshot (they are not).
    pub snapshots: bool,
    /// Whether lock-free reads may show what vanishes with its primary, as they do.
    pub readers_may_be_fooled: bool,
    /// Whether owners leave nothing behind, though nobody recovers it.
    pub tidy: bool,
    /// Whether the oldest transaction has to get through.
    pub oldest_commits: bool,
}

impl Scenario {
    /// The same without a rule.
    #[must_use]
    pub fn without(mut self, broken: Broken) -> Self {
        self.broken = Some(broken);
        self
    }

    /// Whether that rule is left out.
    #[must_use]
    pub fn lacks(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
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
