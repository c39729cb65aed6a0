//! The world of the protocol models: documents, records, messages that are late, and who works with them.
//!
//! A state is plain data without pointers. Versions are small numbers that are renamed after every step, in their
//! order, so that touching a document for ever leads back to the same state: every bound is on what
//! goes wrong, none on how long it takes.

use std::fmt;

/// Most documents of a model.
pub const DOCS: usize = 3;
/// Most transactions of a model; readers count.
pub const TXNS: usize = 4;
/// Most attempts of one transaction.
pub const ATTEMPTS: usize = 2;
/// Records: one per attempt.
pub const RECORDS: usize = TXNS * ATTEMPTS;
/// Most janitors.
pub const JANITORS: usize = 2;
/// Most messages under way.
const MESSAGES: usize = 2;

/// An attempt of a transaction: 1 + transaction * [`ATTEMPTS`] + attempt; 0 is nobody.
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

/// A document as a copy of the store has it. Version 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Doc {
    /// Where it stands; 0 if there is no document.
    pub version: u8,
    /// Who holds it.
    pub lock: Who,
    /// A placeholder.
    pub absent: bool,
    /// Which transaction wrote the content (or deleted it), plus one; 0 at the beginning.
    pub writer: u8,
    /// The commit tid of the content.
    pub stamp: u8,
    /// The commits since the document was inserted, one bit per stamp: the longest list that it can carry.
    pub recent: u32,
    /// How often its collection was made again.
    pub era: u8,
}

impl Doc {
    /// Whether readers see a document.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.version > 0 && !self.absent
    }

    /// The list of commits of what takes this one's place. It begins anew with each insert.
    #[must_use]
    pub fn recent_with(&self, next: &Self) -> u32 {
        if next.exists() { self.recent | 1 << next.stamp } else { 0 }
    }
}

/// What a transaction record says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mark {
    /// There is none.
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

/// What becomes of a participant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Deed {
    /// It is no participant.
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
    /// Whether it changes the document.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Delete | Self::Insert)
    }
}

/// A transaction record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rec {
    /// Where it stands; 0 if there is none.
    pub version: u8,
    /// Its state.
    pub mark: Mark,
    /// The commit tid.
    pub stamp: u8,
    /// The participants.
    pub deeds: [Deed; DOCS],
    /// For each the version at which the placeholder stood; 0 where a document was locked.
    pub versions: [u8; DOCS],
    /// For each the commit under the lock, where there was a document.
    pub before: [u8; DOCS],
    /// For each how often its collection was made again before it was locked.
    pub eras: [u8; DOCS],
}

/// One document or record of the store. What is dirty is on the primary only and may vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot<T> {
    /// What reads show.
    pub now: T,
    /// What is left when the primary crashes.
    pub durable: T,
    /// Whether `now` may vanish.
    pub dirty: bool,
}

/// Something that stands at a version.
pub trait Versioned: Copy {
    /// The version, 0 if there is nothing.
    fn version(&self) -> u8;
    /// The same at another version.
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
    /// An acknowledged write; whatever was dirty below it is durable with it.
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

/// What a transaction saw of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Whether it looked.
    pub read: bool,
    /// The version; 0 if there was no document, or the content came from a record.
    pub version: u8,
    /// Whether there was no content.
    pub absent: bool,
    /// Whose content.
    pub writer: u8,
    /// Its commit tid.
    pub stamp: u8,
    /// The undecided holder.
    pub holder: Who,
    /// How often its collection had been made again.
    pub era: u8,
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It reads.
    #[default]
    Reading,
    /// It locks.
    Locking,
    /// It validates what it only read.
    Validating,
    /// It verifies the locks of what it only read.
    Verifying,
    /// It commits by its record.
    Committing,
    /// It applies.
    Applying,
    /// It decides its own record, for it gives up.
    Aborting,
    /// It takes its locks off.
    Releasing,
    /// It is over.
    Done,
    /// Its process is dead.
    Dead,
}

/// What the caller was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// Committed, or the reads belong together.
    Committed,
    /// Not committed.
    Failed,
}

/// The apply of somebody else's committed transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Help {
    /// Whose; 0: nobody's.
    pub who: Who,
    /// The participants that are dealt with.
    pub done: u8,
}

/// A transaction, as its owner's process knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Txn {
    /// Where it is.
    pub phase: Phase,
    /// Which attempt, from 0.
    pub attempt: u8,
    /// What the caller was told.
    pub told: Told,
    /// What it read.
    pub seen: [Seen; DOCS],
    /// The acknowledged version of each lock.
    pub held: [u8; DOCS],
    /// Locks that were sent and not acknowledged.
    pub unsure: u8,
    /// Participants that the current phase is done with.
    pub done: u8,
    /// A one-document write landed.
    pub landed: bool,
    /// Transactions that ended, to their callers, before this one began.
    pub after: u8,
    /// What it does about others.
    pub help: Help,
    /// Attempts whose `aborted` was acknowledged to this process.
    pub knows: u8,
    /// What an owner knows that applies beside plain clients.
    pub own: Own,
}

/// What an owner knows of its commit while it applies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Own {
    /// The version of its record by its own last acknowledged write; 0 once it is not known.
    pub record: u8,
    /// Placeholders that it may take for its locks, by their versions.
    pub relocked: [u8; DOCS],
    /// Absences that it saw before its record was found untouched.
    pub missing: u8,
}

/// Somebody who recovers whatever is left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Janitor {
    /// What it does.
    pub help: Help,
    /// Attempts whose `aborted` was acknowledged to this process.
    pub knows: u8,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// A document.
    Doc(usize, Doc),
    /// The record of an attempt.
    Rec(Who, Rec),
}

/// A write under way: it lands if the target is at that version, 0 for a `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The condition.
    pub expected: u8,
    /// What is written, where.
    pub body: Body,
}

/// How much may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Writes whose answer is lost and that land later, or never.
    pub late: u8,
    /// Acknowledged creates that land again.
    pub forks: u8,
    /// Writes that only the primary has, whose answer is lost.
    pub dirty: u8,
    /// Owners that die.
    pub deaths: u8,
    /// Writes that are applied and answered with a refusal.
    pub refused: u8,
    /// Placeholders that a plain client writes again as they are.
    pub moved: u8,
    /// Placeholders that a plain client deletes.
    pub removed: u8,
    /// Collections that an administrator drops and makes again.
    pub made_again: u8,
}

/// A state of the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    /// The documents.
    pub docs: [Slot<Doc>; DOCS],
    /// The records, by attempt.
    pub recs: [Slot<Rec>; RECORDS],
    /// The transactions.
    pub txns: [Txn; TXNS],
    /// Those who recover.
    pub janitors: [Janitor; JANITORS],
    /// Writes under way.
    pub net: [Option<Message>; MESSAGES],
    /// What may still go wrong.
    pub budget: Budget,
    /// Documents that were reported, because nobody could tell whether a commit was applied there.
    pub reported: u8,
    /// For each document the transactions that were applied to it in a collection that was dropped.
    pub dropped: [u8; DOCS],
    /// What must never happen happened.
    pub fault: Option<Fault>,
}

/// What must never happen, found while it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// `applying` calls a document damaged into which nobody wrote.
    Damaged,
    /// `applying` finds that a later commit is not on top of its own, and nobody took its lock off.
    Overtaken,
    /// A transaction was acknowledged, and its record says aborted.
    Undone,
}

impl World {
    /// What reads show of a record.
    #[must_use]
    pub fn rec(&self, who: Who) -> &Rec {
        &self.recs[usize::from(who) - 1].now
    }

    /// Drops the collection of a document and makes it again. `applied`: the transactions that
    /// were applied to the document. Late writes to the dropped collection never land.
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

    /// Puts a write on its way, if there is room.
    pub fn post(&mut self, mut message: Message) -> bool {
        let Some(free) = self.net.iter_mut().find(|slot| slot.is_none()) else { return false };
        if let Body::Doc(_, doc) = &mut message.body {
            // Where it will stand and on what it follows is settled when it lands.
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

    /// Carries a write out; returns the new version. A document without content and lock is deleted.
    pub fn carry_out(&mut self, body: Body, dirty: bool) -> u8 {
        match body {
            Body::Doc(d, mut doc) => {
                if doc.absent && self.docs[d].now.version == 0 {
                    // A placeholder has no content; whose deletion it covers, only the model knows.
                    doc.writer = self.docs[d].now.writer;
                }
                let gone = doc.version == 0;
                doc.era = self.docs[d].now.era;
                // What a write lands on is what its author read.
                doc.recent = self.docs[d].now.recent_with(&doc);
                let version = if gone { 0 } else { self.fresh_version(d) };
                let slot = &mut self.docs[d];
                if !dirty {
                    // Whatever was dirty below is durable with it.
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

/// What a look at a document shows.
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

/// The transactions whose callers know that they are committed.
pub(crate) fn ended(w: &World) -> u8 {
    (0..TXNS).filter(|t| w.txns[*t].told == Told::Committed).map(|t| 1 << t).sum()
}

/// Whether a record says that the transaction is committed.
pub(crate) fn is_committed(mark: Mark) -> bool {
    matches!(mark, Mark::Committed | Mark::Finished)
}

/// One line per thing that is not as at the beginning, for people who read a path.
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
