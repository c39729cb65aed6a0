//! The facts at the end of a run: outcomes and final documents.

use std::collections::BTreeMap;

use crate::history::{Content, Doc, Fate, Operation};
use crate::scenario::Scenario;
use crate::watch::LongLock;
use txn_core::AttemptId;
use txn_sim::server::{HeldUp, Mirage};

/// The settled history of a run.
#[derive(Debug)]
pub struct Ledger {
    /// The scenario of the run.
    pub scenario: Scenario,
    /// The operations of all actors.
    pub operations: Vec<Operation>,
    /// The final outcomes of operations without an answer, by the engine.
    pub settled: BTreeMap<u64, bool>,
    /// The final documents, without absent ones.
    pub finals: BTreeMap<Doc, Content>,
    /// The writes that were seen and vanished.
    pub mirages: Vec<Mirage>,
    /// Documents that stayed locked too long after the faults.
    pub long_locks: Vec<LongLock>,
    /// The cost of the final cleanup.
    pub clean_up: CleanUp,
    /// Attempts that a process took for dead during their closures. Each entry has the attempt and
    /// the process.
    pub buried: Vec<(AttemptId, String)>,
    /// Documents in requests that also asked for slow documents.
    pub held_up: Vec<HeldUp>,
}

/// The work of a janitor that started after the faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanUp {
    /// Locks and open records that existed since.
    pub found: u64,
    /// The number of passes.
    pub passes: u64,
    /// Days of the transaction table that were dropped.
    pub dropped: u64,
    /// Documents and records that the janitor wrote.
    pub written: u64,
}

impl Ledger {
    /// Whether an operation was committed; `None` if that is unknown.
    #[must_use]
    pub fn committed(&self, operation: &Operation) -> Option<bool> {
        let lasting = operation.writes.keys().find(|doc| doc.lasts());
        match operation.fate {
            Fate::Committed => Some(true),
            Fate::Aborted(_) => Some(false),
            Fate::Unknown | Fate::Unheard => match lasting {
                // The documents of the operation tell.
                Some(doc) => Some(self.history_of(*doc).contains(&operation.number)),
                None => self.settled.get(&operation.number).copied(),
            },
        }
    }

    /// The operations that are committed for certain.
    pub fn all_committed(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(|operation| self.committed(operation) == Some(true))
    }

    /// The operations that wrote a lasting document, in order.
    #[must_use]
    pub fn history_of(&self, doc: Doc) -> &[u64] {
        self.finals.get(&doc).map_or(&[], |content| &content.entries)
    }

    /// The documents that are never deleted.
    pub fn lasting(&self) -> impl Iterator<Item = (Doc, &Content)> {
        self.finals.iter().filter(|(doc, _)| doc.lasts()).map(|(doc, content)| (*doc, content))
    }

    /// Whether the reads of the operation are certain.
    ///
    /// Only a transaction validates its reads. Any other read may show a write that vanishes with
    /// its primary.
    #[must_use]
    pub fn reads_are_certain(&self, operation: &Operation) -> bool {
        let validated = operation.is_committed() && !operation.kind.is_look();
        validated || !(self.may_have_seen_a_mirage(operation) || self.may_be_composed(operation))
    }

    /// Whether the closure may have run on uncommitted writes of its process.
    ///
    /// The engine discards such a run if these writes are not committed.
    fn may_be_composed(&self, operation: &Operation) -> bool {
        self.scenario.groups && !operation.kind.is_look() && !operation.writes.is_empty()
    }

    /// Whether the operation may have read a write that vanished.
    #[must_use]
    pub fn may_have_seen_a_mirage(&self, operation: &Operation) -> bool {
        self.mirages.iter().any(|mirage| {
            mirage.until >= operation.began && operation.ended.is_none_or(|end| mirage.from <= end)
        })
    }
}
