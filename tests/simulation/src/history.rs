//! What the actors did and saw: all that the invariants know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use txn_core::{AttemptId, Collection, CommitVersion, Typed};

/// A collection of the world.
pub(crate) type World = Collection<Typed<Content>>;

/// The content of every document of the simulated world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The operation that wrote it.
    pub by: u64,
    /// Money.
    pub balance: i64,
    /// How often the document was written.
    pub writes: u64,
    /// Who wrote it, from the first on.
    pub entries: Vec<u64>,
    /// Whether it is on call.
    pub on: bool,
}

impl Content {
    /// What the operation makes of it.
    #[must_use]
    pub fn after(mut self, operation: u64, leg: i64) -> Self {
        self.by = operation;
        self.balance += leg;
        self.writes += 1;
        self.entries.push(operation);
        self
    }
}

/// The documents, by what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doc {
    /// Has money; never deleted.
    Account(u8),
    /// One of two people of whom one must be on call; never deleted.
    OnCall(u8),
    /// One of two that never exist both.
    Claim(u8),
    /// One of three of which exactly one exists at any time.
    Token(u8),
    /// Is inserted and deleted again and again.
    Slot(u8),
    /// Written from what stands in an account, which is only read; never deleted.
    Sheet(u8),
    /// In an index of its own, which may be lost; never deleted.
    Annex(u8),
    /// A copy of a document that an application made while that was locked. Nothing is expected of its content.
    Stray(u64),
    /// Inserted by one transfer, perhaps deleted later, and never made again.
    Journal(u64),
}

impl Doc {
    /// Its id in its collection.
    #[must_use]
    pub fn id(self) -> String {
        match self {
            Self::Account(n) => format!("account-{n}"),
            Self::OnCall(n) => format!("on-call-{n}"),
            Self::Claim(n) => format!("claim-{n}"),
            Self::Token(n) => format!("token-{n}"),
            Self::Slot(n) => format!("slot-{n}"),
            Self::Sheet(n) => format!("sheet-{n}"),
            Self::Annex(n) => format!("annex-{n}"),
            Self::Stray(n) => format!("stray-{n}"),
            Self::Journal(n) => format!("journal-{n}"),
        }
    }

    /// Whether it is never deleted, so that it tells its whole history.
    #[must_use]
    pub fn lasts(self) -> bool {
        matches!(self, Self::Account(_) | Self::OnCall(_) | Self::Sheet(_) | Self::Annex(_))
    }
}

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Moves money, perhaps with a journal entry.
    Transfer,
    /// Reads everything in one transaction.
    Audit,
    /// Takes one of two off call, or puts both on.
    OnCall,
    /// Inserts one of two documents if both are absent, else deletes what is there.
    Claim,
    /// Deletes one of three documents and inserts another.
    Token,
    /// Inserts or deletes.
    Slot,
    /// Deletes a journal entry.
    Prune,
    /// Writes one document.
    Note,
    /// Writes one document by compare-and-set, without a transaction.
    CompareAndSet,
    /// Reads an account and writes a sheet.
    Charge,
    /// Writes an account and a document of the annex.
    Filing,
    /// Writes an account and a stray copy.
    Tend,
    /// Reads one document without locks, from any copy.
    Look,
    /// Reads one document without locks, from the primary.
    VerifiedLook,
    /// Waits until everything is applied, and reads what stands there by itself.
    Barrier,
    /// Reads everything as it stood at a moment of the past.
    LookBack,
}

impl Kind {
    /// Whether it reads without a transaction.
    #[must_use]
    pub fn is_look(self) -> bool {
        matches!(self, Self::Look | Self::VerifiedLook | Self::Barrier | Self::LookBack)
    }

    /// Whether it leaves no record that could be asked for its outcome.
    #[must_use]
    pub fn may_leave_no_record(self) -> bool {
        matches!(self, Self::Note | Self::CompareAndSet)
    }
}

/// How an operation ended, as far as its caller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged.
    Committed,
    /// Certainly not.
    Aborted(String),
    /// The engine said that it does not know.
    Unknown,
    /// Nobody was there any more to be told: the process died, or the caller went away.
    Unheard,
}

/// One operation of an actor.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its number, unique in the history, from 1.
    pub number: u64,
    /// Who ran it.
    pub process: String,
    /// What it was.
    pub kind: Kind,
    /// When it began, in true time.
    pub began: Duration,
    /// When it ended.
    pub ended: Option<Duration>,
    /// How it ended.
    pub fate: Fate,
    /// Its last attempt.
    pub tid: Option<AttemptId>,
    /// The version of what it wrote, if it was told.
    pub commit: Option<CommitVersion>,
    /// The moment that it looked back to.
    pub moment: Option<Duration>,
    /// What its last attempt read.
    pub reads: BTreeMap<Doc, Option<Content>>,
    /// What its last attempt wanted to write; nothing for a deletion.
    pub writes: BTreeMap<Doc, Option<Content>>,
    /// The money that it moves.
    pub legs: BTreeMap<Doc, i64>,
}

impl Operation {
    /// Whether it was acknowledged.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.fate == Fate::Committed
    }
}

/// Operations in the order in which they began; shared by all actors.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Vec<Operation>>>);

impl History {
    /// Notes that an operation begins. Returns its number.
    pub fn begin(&self, process: &str, kind: Kind, now: Duration) -> u64 {
        let mut operations = self.0.lock();
        let number = operations.len() as u64 + 1;
        operations.push(Operation {
            number,
            process: process.to_owned(),
            kind,
            began: now,
            ended: None,
            fate: Fate::Unheard,
            tid: None,
            commit: None,
            moment: None,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            legs: BTreeMap::new(),
        });
        number
    }

    /// Changes what is known of an operation.
    pub fn note(&self, number: u64, change: impl FnOnce(&mut Operation)) {
        let at = usize::try_from(number - 1).unwrap_or(usize::MAX);
        if let Some(operation) = self.0.lock().get_mut(at) {
            change(operation);
        }
    }

    /// A journal entry that is known to exist or to have existed.
    #[must_use]
    pub fn journal(&self, pick: usize) -> Option<Doc> {
        let operations = self.0.lock();
        let written: Vec<Doc> = operations
            .iter()
            .filter(|operation| operation.is_committed())
            .flat_map(|operation| operation.writes.keys())
            .filter(|doc| matches!(doc, Doc::Journal(_)))
            .copied()
            .collect();
        written.get(pick.checked_rem(written.len())?).copied()
    }

    /// All of them.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        self.0.lock().clone()
    }
}
