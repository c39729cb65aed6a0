//! The journal: all lines of the workers, and conclusions from them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use txn_core::AttemptId;

use crate::demo::line::Line;

/// The worker number of the command's own janitor.
pub(crate) const JANITOR: usize = 0;

pub(crate) fn name_of(worker: usize) -> String {
    match worker {
        JANITOR => "the janitor".to_owned(),
        worker => format!("worker {worker}"),
    }
}

/// A line, its worker, and its time since the start.
#[derive(Clone, Debug)]
pub(crate) struct JournalEntry {
    pub(crate) at: Duration,
    pub(crate) worker: usize,
    pub(crate) line: Line,
}

/// An attempt that was under way at its worker's last line.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct OpenAttempt {
    /// The documents with acknowledged locks.
    pub(crate) locked: BTreeSet<String>,
    /// The number of written documents, if the commit was acknowledged.
    pub(crate) committed: Option<usize>,
}

/// The fate of a killed worker's transaction.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub(crate) enum Fate {
    /// Another process rolled the transaction forward.
    RolledForward { by: usize, at_ms: u128, documents: Vec<String> },
    /// Another process aborted the transaction after one lease without a heartbeat.
    AbortedByRecovery { by: usize, at_ms: u128, document: String },
    /// An older transaction wounded the transaction.
    Wounded { by: usize, by_tid: AttemptId, at_ms: u128, document: String },
}

impl Fate {
    /// The transaction and the fate that a line reports.
    pub(crate) fn of(
        JournalEntry { at, worker, line }: &JournalEntry,
    ) -> Option<(AttemptId, Self)> {
        let (by, at_ms) = (*worker, at.as_millis());
        Some(match line {
            Line::RolledForward { tid, documents } => {
                (*tid, Self::RolledForward { by, at_ms, documents: documents.clone() })
            }
            Line::AbortedByRecovery { tid, document } => {
                (*tid, Self::AbortedByRecovery { by, at_ms, document: document.clone() })
            }
            Line::Wounded { victim, by: by_tid, document } => {
                let document = document.clone();
                (*victim, Self::Wounded { by, by_tid: *by_tid, at_ms, document })
            }
            _ => return None,
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) entries: Vec<JournalEntry>,
    open_attempts: BTreeMap<usize, BTreeMap<AttemptId, OpenAttempt>>,
    pub(crate) committed: BTreeMap<usize, u64>,
    pub(crate) pids: BTreeMap<usize, u32>,
}

impl Journal {
    pub(crate) fn record(&mut self, entry: JournalEntry) {
        let open_attempts = self.open_attempts.entry(entry.worker).or_default();
        match &entry.line {
            Line::Ready { pid } => {
                self.pids.insert(entry.worker, *pid);
            }
            Line::Started { tid } => {
                open_attempts.insert(*tid, OpenAttempt::default());
            }
            Line::Locked { tid, documents } => {
                open_attempts.entry(*tid).or_default().locked.extend(documents.iter().cloned());
            }
            Line::Committed { tid, written } => {
                *self.committed.entry(entry.worker).or_default() += 1;
                open_attempts.entry(*tid).or_default().committed = Some(*written);
            }
            Line::Aborted { tid, .. } | Line::Finished { tid } => {
                open_attempts.remove(tid);
            }
            _ => {}
        }
        self.entries.push(entry);
    }

    /// The numbers of a worker's transactions that are under way.
    ///
    /// The first number counts transactions with locks and without a commit, the second one
    /// unapplied commits.
    pub(crate) fn under_way(&self, worker: usize) -> (usize, usize) {
        let open_attempts = self.open_attempts.get(&worker).into_iter().flat_map(BTreeMap::values);
        open_attempts.fold((0, 0), |(held, committed), attempt| match attempt.committed {
            Some(_) => (held, committed + 1),
            None if attempt.locked.is_empty() => (held, committed),
            None => (held + 1, committed),
        })
    }

    /// The transactions that an ended worker left.
    pub(crate) fn leftovers_of(&self, worker: usize) -> BTreeMap<AttemptId, OpenAttempt> {
        self.open_attempts.get(&worker).cloned().unwrap_or_default()
    }

    /// Whether an ended worker left this transaction.
    pub(crate) fn is_leftover_of(&self, worker: usize, tid: AttemptId) -> bool {
        self.open_attempts
            .get(&worker)
            .is_some_and(|open_attempts| open_attempts.contains_key(&tid))
    }

    /// The fate of an ended worker's transaction.
    pub(crate) fn fate(&self, owner: usize, tid: AttemptId) -> Option<Fate> {
        self.entries.iter().find_map(|entry| {
            let (of, fate) = Fate::of(entry)?;
            // The worker itself may have wounded the transaction just before its end. All other
            // fates come from other workers.
            let is_its_own = entry.worker == owner && !matches!(fate, Fate::Wounded { .. });
            (of == tid && !is_its_own).then_some(fate)
        })
    }

    /// The number of lines of a kind.
    pub(crate) fn count(&self, is: impl Fn(&Line) -> bool) -> usize {
        self.entries.iter().filter(|entry| is(&entry.line)).count()
    }

    /// Wounds between live transactions that both committed later.
    ///
    /// Each has the older and the younger transaction, the document, and the attempt in which the
    /// younger one committed.
    pub(crate) fn wounds(&self) -> Vec<Wound> {
        let mut committed: BTreeMap<_, (u16, usize)> = BTreeMap::new();
        let mut older_committed = BTreeSet::new();
        for entry in &self.entries {
            if let Line::Committed { tid, .. } = &entry.line {
                committed.insert(tid.age(), (tid.attempt(), entry.worker));
                older_committed.insert(tid.age());
            }
        }
        let wound = |entry: &JournalEntry| match &entry.line {
            Line::Wounded { by, victim, document } if older_committed.contains(&by.age()) => {
                let (attempt, victim_worker) = *committed.get(&victim.age())?;
                (attempt > victim.attempt()).then(|| Wound {
                    at_ms: entry.at.as_millis(),
                    worker: entry.worker,
                    by: *by,
                    victim: *victim,
                    victim_worker,
                    document: document.clone(),
                    committed_as_attempt: u32::from(attempt) + 1,
                })
            }
            _ => None,
        };
        self.entries.iter().filter_map(wound).collect()
    }
}

/// A wound and its end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Wound {
    pub(crate) at_ms: u128,
    pub(crate) worker: usize,
    pub(crate) by: AttemptId,
    pub(crate) victim: AttemptId,
    pub(crate) victim_worker: usize,
    pub(crate) document: String,
    pub(crate) committed_as_attempt: u32,
}
