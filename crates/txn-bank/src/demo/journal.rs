//! Everything that the workers told, and what can be said from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use txn_core::AttemptId;

use crate::demo::line::Line;

/// The number under which the janitor of the command itself tells.
pub(crate) const JANITOR: usize = 0;

pub(crate) fn who(worker: usize) -> String {
    match worker {
        JANITOR => "the janitor".to_owned(),
        worker => format!("worker {worker}"),
    }
}

/// A line, by whom, and when after the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) at: Duration,
    pub(crate) worker: usize,
    pub(crate) line: Line,
}

/// An attempt that was under way when its worker told its last line.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Flight {
    /// The documents whose locks were acknowledged to it.
    pub(crate) locked: BTreeSet<String>,
    /// How many documents it wrote, if its commit was acknowledged.
    pub(crate) committed: Option<usize>,
}

/// What became of a transaction that a killed worker left behind.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub(crate) enum Fate {
    /// Its images were applied.
    Replayed { by: usize, at_ms: u128, documents: Vec<String> },
    /// It was aborted after one lease without a sign of life.
    AbortedByRecovery { by: usize, at_ms: u128, document: String },
    /// An older transaction aborted it.
    Wounded { by: usize, by_tid: AttemptId, at_ms: u128, document: String },
}

impl Fate {
    /// Of which transaction a line tells it.
    pub(crate) fn of(Told { at, worker, line }: &Told) -> Option<(AttemptId, Self)> {
        let (by, at_ms) = (*worker, at.as_millis());
        Some(match line {
            Line::Replayed { tid, documents } => {
                (*tid, Self::Replayed { by, at_ms, documents: documents.clone() })
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
    pub(crate) told: Vec<Told>,
    flights: BTreeMap<usize, BTreeMap<AttemptId, Flight>>,
    pub(crate) committed: BTreeMap<usize, u64>,
    pub(crate) pids: BTreeMap<usize, u32>,
}

impl Journal {
    pub(crate) fn take(&mut self, told: Told) {
        let flights = self.flights.entry(told.worker).or_default();
        match &told.line {
            Line::Ready { pid } => {
                self.pids.insert(told.worker, *pid);
            }
            Line::Started { tid } => {
                flights.insert(*tid, Flight::default());
            }
            Line::Locked { tid, documents } => {
                flights.entry(*tid).or_default().locked.extend(documents.iter().cloned());
            }
            Line::Committed { tid, written } => {
                *self.committed.entry(told.worker).or_default() += 1;
                flights.entry(*tid).or_default().committed = Some(*written);
            }
            Line::Aborted { tid, .. } | Line::Finished { tid } => {
                flights.remove(tid);
            }
            _ => {}
        }
        self.told.push(told);
    }

    /// How many transactions of a worker hold locks without a commit, and how many are committed and not
    /// applied, as far as it told.
    pub(crate) fn under_way(&self, worker: usize) -> (usize, usize) {
        let flights = self.flights.get(&worker).into_iter().flat_map(BTreeMap::values);
        flights.fold((0, 0), |(held, committed), flight| match flight.committed {
            Some(_) => (held, committed + 1),
            None if flight.locked.is_empty() => (held, committed),
            None => (held + 1, committed),
        })
    }

    /// What a worker that is no more had under way.
    pub(crate) fn left_by(&self, worker: usize) -> BTreeMap<AttemptId, Flight> {
        self.flights.get(&worker).cloned().unwrap_or_default()
    }

    /// Whether a worker that is no more had it under way.
    pub(crate) fn is_left_by(&self, worker: usize, tid: AttemptId) -> bool {
        self.flights.get(&worker).is_some_and(|flights| flights.contains_key(&tid))
    }

    /// What was done with a transaction whose worker is no more.
    pub(crate) fn fate(&self, owner: usize, tid: AttemptId) -> Option<Fate> {
        self.told.iter().find_map(|told| {
            let (of, fate) = Fate::of(told)?;
            // Its own process may have wounded it, just before its end; the rest is for others.
            let is_its_own = told.worker == owner && !matches!(fate, Fate::Wounded { .. });
            (of == tid && !is_its_own).then_some(fate)
        })
    }

    /// How many lines are of a kind.
    pub(crate) fn count(&self, is: impl Fn(&Line) -> bool) -> usize {
        self.told.iter().filter(|told| is(&told.line)).count()
    }

    /// Wounds among living transactions that ended well for both: the older, the younger, the
    /// document, and the attempt by which the younger one committed in the end.
    pub(crate) fn wounds(&self) -> Vec<Wound> {
        let mut committed: BTreeMap<_, (u16, usize)> = BTreeMap::new();
        let mut older_committed = BTreeSet::new();
        for told in &self.told {
            if let Line::Committed { tid, .. } = &told.line {
                committed.insert(tid.age(), (tid.attempt(), told.worker));
                older_committed.insert(tid.age());
            }
        }
        let wound = |told: &Told| match &told.line {
            Line::Wounded { by, victim, document } if older_committed.contains(&by.age()) => {
                let (attempt, victim_worker) = *committed.get(&victim.age())?;
                (attempt > victim.attempt()).then(|| Wound {
                    at_ms: told.at.as_millis(),
                    worker: told.worker,
                    by: *by,
                    victim: *victim,
                    victim_worker,
                    document: document.clone(),
                    committed_as_attempt: u32::from(attempt) + 1,
                })
            }
            _ => None,
        };
        self.told.iter().filter_map(wound).collect()
    }
}

/// A wound, and how it ended.
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
