//! The operations of all actors, the only input of the invariants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use txn_core::{AttemptId, Collection, CommitVersion, Typed};

/// A collection of the simulated environment.
pub(crate) type World = Collection<Typed<Content>>;

/// The content of every document of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The operation that wrote the content.
    pub by: u64,
    /// The amount of money.
    pub balance: i64,
    /// How often the document was written.
    pub writes: u64,
    /// The operations that wrote the document, the first one first.
    pub entries: Vec<u64>,
    /// Whether the person is on call.
    pub on: bool,
}

impl Content {
    /// The content after the operation.
    #[must_use]
    pub fn after(mut self, operation: u64, leg: i64) -> Self {
        self.by = operation;
        self.balance += leg;
        self.writes += 1;
        self.entries.push(operation);
        self
    }
}

/// The documents, by the operations on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doc {
    /// Has money; never deleted.
    Account(u8),
    /// A person; of two people at least one is on call. Never deleted.
    OnCall(u8),
    /// A claim; of two claims at most one exists.
    Claim(u8),
    /// A token; of three tokens exactly one exists at any time.
    Token(u8),
    /// Inserted and deleted again and again.
    Slot(u8),
    /// Written from the content of an account that is only read. Never deleted.
    Sheet(u8),
    /// In an index of its own, which may be lost; never deleted.
    Annex(u8),
    /// A copy of a document that an application made under lock. The document was locked at the
    /// copy. The content is arbitrary.
    Stray(u64),
    /// Inserted by one transfer, perhaps deleted later, and never made again.
    Journal(u64),
}

impl Doc {
    /// The id of the document in its collection.
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

    /// Whether the document is never deleted.
    ///
    /// The entries of such a document are its whole history.
    #[must_use]
    pub fn lasts(self) -> bool {
        matches!(self, Self::Account(_) | Self::OnCall(_) | Self::Sheet(_) | Self::Annex(_))
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Moves money, perhaps with a journal entry.
    Transfer,
    /// Reads everything in one transaction.
    Audit,
    /// Takes one of two people off call, or puts both on call.
    OnCall,
    /// Inserts one of two absent documents, or deletes present ones. If both are absent, one is
    /// inserted. Otherwise those that exist are deleted.
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
    /// Waits for a barrier, and reads the documents without the engine.
    Barrier,
    /// Reads everything as of an earlier time.
    LookBack,
}

impl Kind {
    /// Whether the operation reads without a transaction.
    #[must_use]
    pub fn is_look(self) -> bool {
        matches!(self, Self::Look | Self::VerifiedLook | Self::Barrier | Self::LookBack)
    }

    /// Whether the operation may leave no record to ask for an outcome.
    #[must_use]
    pub fn may_leave_no_record(self) -> bool {
        matches!(self, Self::Note | Self::CompareAndSet)
    }
}

/// The end of an operation, as far as its caller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged.
    Committed,
    /// Failed for certain.
    Aborted(String),
    /// The engine answered that the outcome is unknown.
    Unknown,
    /// No answer: the process died, or the caller dropped its future.
    Unheard,
}

/// An operation of an actor.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The number of the operation, unique in the history, from 1.
    pub number: u64,
    /// The process that ran the operation.
    pub process: String,
    /// The kind of the operation.
    pub kind: Kind,
    /// The start, in true time.
    pub began: Duration,
    /// The end, in true time.
    pub ended: Option<Duration>,
    /// The answer.
    pub fate: Fate,
    /// The last attempt.
    pub tid: Option<AttemptId>,
    /// The commit version, if the caller received it.
    pub commit: Option<CommitVersion>,
    /// The time that the operation read at, if it read history.
    pub moment: Option<Duration>,
    /// The reads of the last attempt.
    pub reads: BTreeMap<Doc, Option<Content>>,
    /// The intended writes of the last attempt; none for a deletion.
    pub writes: BTreeMap<Doc, Option<Content>>,
    /// The money that the operation moves.
    pub legs: BTreeMap<Doc, i64>,
}

impl Operation {
    /// Whether the operation was acknowledged.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.fate == Fate::Committed
    }
}

/// The operations of all actors, in the order of their starts.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Vec<Operation>>>);

impl History {
    /// Notes the start of an operation. Returns the number of the operation.
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

    /// Changes the entry of an operation.
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

    /// All operations.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        self.0.lock().clone()
    }
}
