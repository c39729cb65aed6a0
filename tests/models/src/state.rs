//! The state of the protocol models: documents, records, late messages, and actors.
//!
//! A state is plain data without pointers. Versions are small numbers that are renamed after every
//! step, in their order. So any number of touches of a document leads back to the same state.
//! Bounds limit the faults, and not the length of a path.

use std::fmt;

/// The maximum number of documents of a model.
pub const DOCS: usize = 3;
/// The maximum number of transactions of a model, with readers.
pub const TXNS: usize = 4;
/// The maximum number of attempts of one transaction.
pub const ATTEMPTS: usize = 2;
/// The number of records: one per attempt.
pub const RECORDS: usize = TXNS * ATTEMPTS;
/// The maximum number of janitors.
pub const JANITORS: usize = 2;
/// The maximum number of messages under way.
const MESSAGES: usize = 2;

/// An attempt of a transaction; 0 is no attempt.
///
/// The value is 1 + transaction * [`ATTEMPTS`] + attempt.
pub type Who = u8;

/// The attempt of a transaction.
#[must_use]
pub fn who(txn: usize, attempt: u8) -> Who {
    u8::try_from(1 + txn * ATTEMPTS).unwrap_or_default() + attempt
}

/// The transaction that an attempt belongs to.
#[must_use]
pub fn txn_of(who: Who) -> usize {
    (usize::from(who) - 1) / ATTEMPTS
}

/// The attempt's number, from 0.
#[must_use]
pub fn attempt_of(who: Who) -> u8 {
    (who - 1) % 2_u8
}

/// A document in a copy of the store. Version 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Doc {
    /// The version; 0 if there is no document.
    pub version: u8,
    /// The holder of the lock.
    pub lock: Who,
    /// Whether this is a placeholder.
    pub absent: bool,
    /// The transaction that wrote or deleted the content, plus one. 0 at the start.
    pub writer: u8,
    /// The commit version of the content.
    pub stamp: u8,
    /// The commits since the insert of the document, one bit per stamp.
    ///
    /// The mask is the longest possible list.
    pub recent: u32,
    /// How often the collection was made again.
    pub era: u8,
}

impl Doc {
    /// Whether readers see a document.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.version > 0 && !self.absent
    }

    /// The list of commits of the document that replaces this one. The list begins again with each
    /// insert.
    #[must_use]
    pub fn recent_with(&self, next: &Self) -> u32 {
        if next.exists() { self.recent | 1 << next.stamp } else { 0 }
    }
}

/// The state of a transaction record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mark {
    /// There is no record.
    #[default]
    Missing,
    /// A heartbeat.
    Pending,
    /// Committed.
    Committed,
    /// Applied.
    Finished,
    /// Aborted.
    Aborted,
}

/// The operation on a participant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Deed {
    /// The document is no participant.
    #[default]
    None,
    /// New content.
    Write,
    /// Deleted.
    Delete,
    /// Created by way of a placeholder.
    Insert,
    /// Only read, under a lock.
    Read,
}

impl Deed {
    /// Whether the operation changes the document.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Delete | Self::Insert)
    }
}

/// A transaction record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rec {
    /// The version; 0 if there is no record.
    pub version: u8,
    /// The state.
    pub mark: Mark,
    /// The commit version.
    pub stamp: u8,
    /// The operations on the participants.
    pub deeds: [Deed; DOCS],
    /// The version of each placeholder; 0 if a document was locked.
    pub versions: [u8; DOCS],
    /// The commit under each lock, if there was a document.
    pub before: [u8; DOCS],
    /// How often each collection was made again before the lock.
    pub eras: [u8; DOCS],
}

/// A document or record of the store.
///
/// Dirty data is on the primary only and may vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot<T> {
    /// The data that reads show.
    pub now: T,
    /// The data after a crash of the primary.
    pub durable: T,
    /// Whether `now` may vanish.
    pub dirty: bool,
}

/// Data with a version.
pub trait Versioned: Copy {
    /// The version; 0 if there is nothing.
    fn version(&self) -> u8;
    /// The same data at another version.
    #[must_use]
    fn at(self, version: u8) -> Self;
}

impl Versioned for Doc {
    fn version(&self) -> u8 {
        self.version
    }
    fn at(self, version: u8) -> Self {
        Self { version, ..self }
    }
}

impl Versioned for Rec {
    fn version(&self) -> u8 {
        self.version
    }
    fn at(self, version: u8) -> Self {
        Self { version, ..self }
    }
}

impl<T: Versioned> Slot<T> {
    /// An acknowledged write, which also makes the dirty data below durable.
    pub fn put(&mut self, value: T) {
        (self.now, self.durable, self.dirty) = (value, value, false);
    }

    /// A write that only the primary has.
    pub fn put_dirty(&mut self, value: T) {
        (self.now, self.dirty) = (value, true);
    }

    /// The primary crashes.
    pub fn crash(&mut self) {
        (self.now, self.dirty) = (self.durable, false);
    }
}

/// A transaction's read of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Whether the transaction read the document.
    pub read: bool,
    /// The version; 0 without a document. The version is also 0 for content of a record.
    pub version: u8,
    /// Whether there was no content.
    pub absent: bool,
    /// The writer of the content.
    pub writer: u8,
    /// The commit version of the content.
    pub stamp: u8,
    /// The undecided holder.
    pub holder: Who,
    /// How often the collection had been made again.
    pub era: u8,
}

/// The phase of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The transaction reads.
    #[default]
    Reading,
    /// The transaction locks.
    Locking,
    /// The transaction validates the reads that it did not lock.
    Validating,
    /// The transaction verifies the locks of its reads.
    Verifying,
    /// The transaction commits by its record.
    Committing,
    /// The transaction applies.
    Applying,
    /// The transaction decides its own record, because it gives up.
    Aborting,
    /// The transaction releases its locks.
    Releasing,
    /// The transaction is done.
    Done,
    /// The process is dead.
    Dead,
}

/// The answer to the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Told {
    /// No answer.
    #[default]
    Nothing,
    /// Committed, or the reads belong together.
    Committed,
    /// Not committed.
    Failed,
}

/// The apply of a foreign committed transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ForeignApply {
    /// The attempt; 0: none.
    pub who: Who,
    /// The participants that are settled.
    pub done: u8,
}

/// A transaction, as its owner's process knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Txn {
    /// The phase.
    pub phase: Phase,
    /// The number of the attempt, from 0.
    pub attempt: u8,
    /// The answer to the caller.
    pub told: Told,
    /// The reads.
    pub seen: [Seen; DOCS],
    /// The acknowledged version of each lock.
    pub held: [u8; DOCS],
    /// Locks that were sent and not acknowledged.
    pub unsure: u8,
    /// Participants that the current phase has settled.
    pub done: u8,
    /// Whether a write of one document landed.
    pub landed: bool,
    /// Transactions that ended, for their callers, before this one began.
    pub after: u8,
    /// The present work on a foreign transaction.
    pub foreign: ForeignApply,
    /// Attempts whose `aborted` was acknowledged to this process.
    pub knows: u8,
    /// The knowledge of an owner that applies despite plain clients.
    pub own: Own,
}

/// The knowledge of an owner about its commit during the apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Own {
    /// The record's version by the owner's last acknowledged write. 0 if the version is unknown.
    pub record: u8,
    /// Placeholders that count as the owner's locks, by their versions.
    pub relocked: [u8; DOCS],
    /// Absences that the owner read before the touch of its record.
    pub missing: u8,
}

/// A process that recovers locks and records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Janitor {
    /// The present work.
    pub foreign: ForeignApply,
    /// Attempts whose `aborted` was acknowledged to this process.
    pub knows: u8,
}

/// The content of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// A document.
    Doc(usize, Doc),
    /// The record of an attempt.
    Rec(Who, Rec),
}

/// A write under way. The write lands if the target has the expected version, 0 for a `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The condition.
    pub expected: u8,
    /// The target and the content.
    pub body: Body,
}

/// The faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Writes that land later or never, without an answer.
    pub late: u8,
    /// Acknowledged creates that land again.
    pub forks: u8,
    /// Writes that only the primary has, without an answer.
    pub dirty: u8,
    /// Owners that die.
    pub deaths: u8,
    /// Writes that are applied and answered with a refusal.
    pub refused: u8,
    /// Placeholders that a plain client rewrites unchanged.
    pub moved: u8,
    /// Placeholders that a plain client deletes.
    pub removed: u8,
    /// Collections that an administrator drops and makes again.
    pub made_again: u8,
}

/// A state of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    /// The documents.
    pub docs: [Slot<Doc>; DOCS],
    /// The records, by attempt.
    pub recs: [Slot<Rec>; RECORDS],
    /// The transactions.
    pub txns: [Txn; TXNS],
    /// The janitors.
    pub janitors: [Janitor; JANITORS],
    /// Writes under way.
    pub net: [Option<Message>; MESSAGES],
    /// The faults that may still happen.
    pub budget: Budget,
    /// Documents with an unclear apply that were reported. No process could tell whether a commit
    /// was applied.
    pub reported: u8,
    /// Per document, the transactions that were applied in a dropped collection.
    pub dropped: [u8; DOCS],
    /// The impossible event that happened, if any.
    pub fault: Option<Fault>,
}

/// An event that must never happen, found when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// `applying` calls a document damaged that no plain client wrote.
    Damaged,
    /// `applying` finds a later commit that does not follow its own.
    ///
    /// No plain client removed the lock.
    Overtaken,
    /// A transaction was acknowledged, and its record is aborted.
    Undone,
}

impl World {
    /// The record as reads show it.
    #[must_use]
    pub fn rec(&self, who: Who) -> &Rec {
        &self.recs[usize::from(who) - 1].now
    }

    /// Drops the collection of a document and makes it again.
    ///
    /// `applied`: the transactions that were applied to the document. Late writes to the dropped
    /// collection never land.
    pub(crate) fn make_again(&mut self, d: usize, applied: u8) {
        let again = Doc { era: self.docs[d].now.era + 1, ..Doc::default() };
        self.docs[d].put(again);
        self.dropped[d] |= applied;
        for slot in &mut self.net {
            if slot.is_some_and(|message| matches!(message.body, Body::Doc(at, _) if at == d)) {
                *slot = None;
            }
        }
    }

    /// Puts a write on its way, if a slot is free.
    pub fn post(&mut self, mut message: Message) -> bool {
        let Some(free) = self.net.iter_mut().find(|slot| slot.is_none()) else { return false };
        if let Body::Doc(_, doc) = &mut message.body {
            // The version and the list are known only when the write lands.
            *doc = Doc { version: doc.version.min(1), recent: 0, era: 0, ..*doc };
        }
        *free = Some(message);
        true
    }

    /// Whether the condition of a write holds.
    #[must_use]
    pub fn holds(&self, message: &Message) -> bool {
        match message.body {
            Body::Doc(d, _) => self.docs[d].now.version == message.expected,
            Body::Rec(who, _) => self.rec(who).version == message.expected,
        }
    }

    pub(crate) fn fresh_version(&mut self, d: usize) -> u8 {
        let mut most = 0;
        self.doc_versions(d, |v| most = most.max(*v));
        most + 1
    }

    pub(crate) fn fresh_record_version(&mut self, who: Who) -> u8 {
        let mut most = 0;
        self.rec_versions(who, |v| most = most.max(*v));
        most + 1
    }

    /// Visits every version of a document.
    pub(crate) fn doc_versions(&mut self, d: usize, mut visit: impl FnMut(&mut u8)) {
        visit(&mut self.docs[d].now.version);
        visit(&mut self.docs[d].durable.version);
        for txn in &mut self.txns {
            visit(&mut txn.seen[d].version);
            visit(&mut txn.held[d]);
            visit(&mut txn.own.relocked[d]);
        }
        for slot in &mut self.recs {
            visit(&mut slot.now.versions[d]);
            visit(&mut slot.durable.versions[d]);
        }
        for message in self.net.iter_mut().flatten() {
            match &mut message.body {
                Body::Doc(at, _) if *at == d => visit(&mut message.expected),
                Body::Rec(_, rec) => visit(&mut rec.versions[d]),
                Body::Doc(..) => {}
            }
        }
    }

    /// Visits every version of a record.
    pub(crate) fn rec_versions(&mut self, who: Who, mut visit: impl FnMut(&mut u8)) {
        let slot = &mut self.recs[usize::from(who) - 1];
        visit(&mut slot.now.version);
        visit(&mut slot.durable.version);
        let txn = &mut self.txns[txn_of(who)];
        if self::who(txn_of(who), txn.attempt) == who {
            visit(&mut txn.own.record);
        }
        for message in self.net.iter_mut().flatten() {
            if matches!(message.body, Body::Rec(at, _) if at == who) {
                visit(&mut message.expected);
            }
        }
    }

    /// Carries a write out, and returns the new version.
    ///
    /// A document without content and lock is deleted.
    pub fn carry_out(&mut self, body: Body, dirty: bool) -> u8 {
        match body {
            Body::Doc(d, mut doc) => {
                if doc.absent && self.docs[d].now.version == 0 {
                    // A placeholder has no content. Only the model knows the deletion that it
                    // covers.
                    doc.writer = self.docs[d].now.writer;
                }
                let gone = doc.version == 0;
                doc.era = self.docs[d].now.era;
                // The write lands on the content that its author read.
                doc.recent = self.docs[d].now.recent_with(&doc);
                let version = if gone { 0 } else { self.fresh_version(d) };
                let slot = &mut self.docs[d];
                if !dirty {
                    // Dirty data below is durable with this write.
                    for writer in [slot.now.writer, doc.writer].into_iter().filter(|w| *w > 0) {
                        self.txns[usize::from(writer) - 1].landed = true;
                    }
                }
                if dirty {
                    slot.put_dirty(doc.at(version));
                } else {
                    slot.put(doc.at(version));
                };
                version
            }
            Body::Rec(who, rec) => {
                let version = self.fresh_record_version(who);
                let slot = &mut self.recs[usize::from(who) - 1];
                if dirty {
                    slot.put_dirty(rec.at(version));
                } else {
                    slot.put(rec.at(version));
                };
                version
            }
        }
    }
}

/// A read of a document.
pub(crate) fn seen(doc: &Doc) -> Seen {
    Seen {
        read: true,
        version: doc.version,
        absent: !doc.exists(),
        writer: doc.writer,
        stamp: doc.stamp,
        holder: doc.lock,
        era: doc.era,
    }
}

/// The transactions whose callers know of the commit.
pub(crate) fn ended(w: &World) -> u8 {
    (0..TXNS).filter(|t| w.txns[*t].told == Told::Committed).map(|t| 1 << t).sum()
}

/// Whether a record says that the transaction is committed.
pub(crate) fn is_committed(mark: Mark) -> bool {
    matches!(mark, Mark::Committed | Mark::Finished)
}

/// The differences to the initial state.
///
/// A path prints these differences.
impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (d, slot) in self.docs.iter().enumerate() {
            write!(f, " d{d}:{}", Shown(&slot.now))?;
            if slot.dirty {
                write!(f, "(dirty over {})", Shown(&slot.durable))?;
            }
        }
        for (r, slot) in self.recs.iter().enumerate() {
            if slot.now.mark != Mark::Missing || slot.dirty {
                let (t, a) = (r / ATTEMPTS + 1, r % ATTEMPTS);
                write!(f, " T{t}.{a}:{:?}{}", slot.now.mark, if slot.dirty { "?" } else { "" })?;
            }
        }
        Ok(())
    }
}

struct Shown<'a>(&'a Doc);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doc = self.0;
        match (doc.version, doc.absent) {
            (0, _) => write!(f, "-")?,
            (_, true) => write!(f, "placeholder")?,
            (_, false) => write!(f, "by{}", doc.writer)?,
        }
        if doc.lock > 0 {
            write!(f, "[T{}.{}]", txn_of(doc.lock) + 1, attempt_of(doc.lock))?;
        }
        Ok(())
    }
}
