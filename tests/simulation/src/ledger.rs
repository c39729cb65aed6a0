//! What is known at the end of a world: who committed, and what stands there.

use std::collections::BTreeMap;

use crate::history::{Content, Doc, Fate, Operation};
use crate::scenario::Scenario;
use crate::watch::LongLock;
use txn_core::AttemptId;
use txn_sim::server::{HeldUp, Mirage};

/// The history, settled.
#[derive(Debug)]
pub struct Ledger {
    /// The world.
    pub scenario: Scenario,
    /// What everybody did.
    pub operations: Vec<Operation>,
    /// What the engine says at the end of operations whose caller was not told.
    pub settled: BTreeMap<u64, bool>,
    /// What stands there in the end; absent documents are not in it.
    pub finals: BTreeMap<Doc, Content>,
    /// The writes that were seen and vanished.
    pub mirages: Vec<Mirage>,
    /// What stayed locked for too long once everybody had a server to talk to.
    pub long_locks: Vec<LongLock>,
    /// What it took to clean up.
    pub clean_up: CleanUp,
    /// Attempts that were taken for dead while their closures were under way, and by whom.
    pub buried: Vec<(AttemptId, String)>,
    /// Documents that were asked for together with slow ones.
    pub held_up: Vec<HeldUp>,
}

/// What a janitor did that came when the faults had ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanUp {
    /// Locks and open records that there were since.
    pub found: u64,
    /// How often it looked.
    pub passes: u64,
    /// Days of the transaction table that were dropped.
    pub dropped: u64,
    /// Documents and records that it wrote.
    pub written: u64,
}

impl Ledger {
    /// Whether an operation was committed; `None` if nobody can tell any more.
    #[must_use]
    pub fn committed(&self, operation: &Operation) -> Option<bool> {
        let lasting = operation.writes.keys().find(|doc| doc.lasts());
        match operation.fate {
            Fate::Committed => Some(true),
            Fate::Aborted(_) => Some(false),
            Fate::Unknown | Fate::Unheard => match lasting {
                // Its documents themselves tell.
                Some(doc) => Some(self.history_of(*doc).contains(&operation.number)),
                None => self.settled.get(&operation.number).copied(),
            },
        }
    }

    /// The operations that are committed for certain.
    pub fn all_committed(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(|operation| self.committed(operation) == Some(true))
    }

    /// Who wrote a lasting document, in order.
    #[must_use]
    pub fn history_of(&self, doc: Doc) -> &[u64] {
        self.finals.get(&doc).map_or(&[], |content| &content.entries)
    }

    /// The lasting documents.
    pub fn lasting(&self) -> impl Iterator<Item = (Doc, &Content)> {
        self.finals.iter().filter(|(doc, _)| doc.lasts()).map(|(doc, content)| (*doc, content))
    }

    /// Whether what the operation read was there for certain: only a transaction validates it, and a write that
    /// others see may vanish with its primary.
    #[must_use]
    pub fn reads_are_certain(&self, operation: &Operation) -> bool {
        let validated = operation.is_committed() && !operation.kind.is_look();
        validated || !(self.may_have_seen_a_mirage(operation) || self.may_be_composed(operation))
    }

    /// Whether its closure may have run on what others of its process had done and not committed. Such a run is thrown away, if
    /// they are not.
    fn may_be_composed(&self, operation: &Operation) -> bool {
        self.scenario.groups && !operation.kind.is_look() && !operation.writes.is_empty()
    }

    /// Whether what the operation read may have been a write that vanished.
    #[must_use]
    pub fn may_have_seen_a_mirage(&self, operation: &Operation) -> bool {
        self.mirages.iter().any(|mirage| {
            mirage.until >= operation.began && operation.ended.is_none_or(|end| mirage.from <= end)
        })
    }
}
