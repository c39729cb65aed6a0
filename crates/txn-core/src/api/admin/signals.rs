//! The processes of the domain, and past waits for locks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::Serialize;

use super::Admin;
use super::scan::{FaultList, since};
use crate::engine::attempt_error::AttemptError;
use crate::engine::signals::contention::{LockWait, PresentWait};
use crate::engine::signals::process_entry::{ProcessEntry, number_of};
use crate::engine::signals::processes::{ProcessWaits, Signal};
use crate::engine::table::REGISTRY;
use crate::error::Result;
use txn_protocol::ids::ProcessNumber;

/// The number of missed renewal intervals after which a process is silent.
const MISSED_RENEWALS: u64 = 4;

/// A process in the registry of the domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessReport {
    /// The process, as it described itself.
    #[serde(flatten)]
    pub entry: ProcessEntry,
    /// The number of the process in its tids.
    pub number: String,
    /// The time since the last renewal of the entry, in milliseconds.
    pub unchanged_ms: u64,
    /// Whether the process missed its last renewals. A silent process has ended, or does not reach
    /// the store.
    pub silent: bool,
}

/// Past waits for locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Contention {
    /// The waits, newest first.
    pub waits: Vec<LockWait>,
    /// Whether there were more waits than the answer has. Further waits are beyond the limit,
    /// beyond the memory of a process, or in an entry that cannot be read.
    pub truncated: bool,
    /// The start of the time for which the answer is complete. The answer has each wait that ended
    /// then or later. In milliseconds since the Unix epoch; 0 if no wait is missing.
    pub complete_since_ms: u64,
    /// The processes that registered themselves, and those of the waits.
    pub processes: Vec<WaitSource>,
    /// The time of the answer, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// A process that may have waited for locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitSource {
    /// The number of the process in its tids.
    pub number: String,
    /// [`Config::with_process_name`](crate::Config::with_process_name).
    pub process: String,
    /// Whether the process keeps its waits for this answer. `false` if the process has no
    /// [`Config::with_write_contention`](crate::Config::with_write_contention).
    pub recorded: bool,
}

impl Contention {
    /// The name of the process with this number. `None` if several processes share the number.
    #[must_use]
    pub fn process_of(&self, number: ProcessNumber) -> Option<&str> {
        let number = number.to_string();
        only(self.processes.iter().filter(|source| source.number == number))
            .map(|source| &*source.process)
    }

    /// Notes that waits are missing which ended before this time.
    fn note_missing(&mut self, before_ms: u64) {
        self.truncated = true;
        self.complete_since_ms = self.complete_since_ms.max(before_ms);
    }

    /// Adds the waits of one process, of which it had `total`.
    fn add(&mut self, waits: Vec<LockWait>, total: u64) {
        if u64::try_from(waits.len()).unwrap_or(u64::MAX) < total {
            // A process forgets the waits that ended first.
            let oldest = waits.iter().map(LockWait::ended_ms).min();
            self.note_missing(oldest.map_or(self.now_ms, |oldest| oldest.saturating_add(1)));
        }
        self.waits.extend(waits);
    }

    /// Adds a process with a new pair of number and name.
    fn add_source(&mut self, number: String, process: String, recorded: bool) {
        let is = |source: &&mut WaitSource| source.number == number && source.process == process;
        match self.processes.iter_mut().find(is) {
            Some(source) => source.recorded |= recorded,
            None => self.processes.push(WaitSource { number, process, recorded }),
        }
    }

    /// Sorts the waits, and cuts them to the limit.
    fn cut(&mut self, limit: usize) {
        self.waits.sort_by(|a, b| (b.began_ms, b.tid, &b.id).cmp(&(a.began_ms, a.tid, &a.id)));
        // A process has another entry after a jump of its clock.
        self.waits.dedup();
        if self.waits.len() > limit {
            let last = self.waits.drain(limit..).map(|wait| wait.ended_ms()).max();
            self.note_missing(last.unwrap_or(0).saturating_add(1));
        }
    }
}

/// A present wait for a lock. The values are those that its process wrote last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiter {
    /// The wait, as its process reported it.
    #[serde(flatten)]
    pub wait: PresentWait,
    /// The number of the process in its tids.
    pub number: String,
    /// [`Config::with_process_name`](crate::Config::with_process_name) of the process.
    pub process: String,
    /// The time since the process wrote the wait, in milliseconds. 0 in the process itself.
    pub seen_ms: u64,
}

/// The waits for locks that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiters {
    /// The waits, the longest first.
    pub waiters: Vec<Waiter>,
    /// Whether there are more waits than the answer has.
    pub truncated: bool,
    /// The processes that registered themselves.
    pub processes: Vec<WaitSource>,
}

impl Admin<'_> {
    /// Lists the processes that use the domain, the oldest first. Changes nothing.
    ///
    /// A process registers itself if it has a janitor
    /// ([`Config::with_janitor_interval`](crate::Config::with_janitor_interval)). The entries are
    /// hints: a dead process stays listed as silent for an hour.
    ///
    /// # Errors
    /// The errors of the store for the registry.
    pub async fn processes(self) -> Result<Vec<ProcessReport>> {
        let engine = self.engine;
        let report = |entry: ProcessEntry| {
            let unchanged_ms = since(engine, entry.renewed_ms);
            let (number, silent) = (entry.number().to_owned(), is_silent(&entry, unchanged_ms));
            ProcessReport { entry, number, unchanged_ms, silent }
        };
        let entries = self.signals().await?.into_iter().filter_map(|signal| match signal {
            Signal::Process(entry) => Some(report(entry)),
            Signal::Waits(_) | Signal::UnreadableWaits => None,
        });
        let mut reports: Vec<ProcessReport> = entries.collect();
        reports.sort_by(|a, b| {
            (a.entry.since_ms, &a.entry.node).cmp(&(b.entry.since_ms, &b.entry.node))
        });
        Ok(reports)
    }

    /// Returns the last waits for locks of this process, newest first.
    ///
    /// The process remembers
    /// [`Config::with_contention_waits`](crate::Config::with_contention_waits) waits. A wait for
    /// the turn of another process at a hot document is none of them.
    #[must_use]
    pub fn contention(self, limit: usize) -> Contention {
        let mut contention = self.own_contention();
        let WaitSource { number, process, recorded } = self.own_source();
        contention.add_source(number, process, recorded);
        contention.cut(limit);
        contention
    }

    /// Returns the present waits for locks of this process, longest first.
    ///
    /// The process remembers at most 1,024 present waits.
    #[must_use]
    pub fn present_waits(self, limit: usize) -> Vec<PresentWait> {
        self.engine.contention.present(limit)
    }

    /// Returns the last waits of all processes, newest first. Changes nothing.
    ///
    /// The answer has the waits of this process, and of each process with
    /// [`Config::with_write_contention`](crate::Config::with_write_contention) up to its last
    /// write. The waits of a process that has ended are kept for a day.
    ///
    /// # Errors
    /// The errors of the store for the registry.
    pub async fn contention_of_all(self, limit: usize) -> Result<Contention> {
        let mut contention = self.own_contention();
        let (own, source) = (self.engine.processes.node(), self.own_source());
        if !contention.waits.is_empty() {
            contention.add_source(source.number, source.process, true);
        }
        for signal in self.signals().await? {
            match signal {
                Signal::Process(entry) => {
                    let is_own = entry.node == own && source.recorded;
                    let (number, recorded) = (entry.number().to_owned(), entry.writes_contention);
                    contention.add_source(number, entry.process, recorded || is_own);
                }
                // The memory of this process has all of its written waits.
                Signal::Waits(of_process) if of_process.node == own => {}
                Signal::Waits(ProcessWaits { node, process, waits, total, .. }) => {
                    let number = number_of(&node).to_owned();
                    contention.add_source(number, process, true);
                    contention.add(waits, total);
                }
                Signal::UnreadableWaits => contention.note_missing(contention.now_ms),
            }
        }
        contention.cut(limit);
        Ok(contention)
    }

    /// Returns the present waits of all processes, longest first. Changes nothing.
    ///
    /// The answer has the waits of this process, and of each process with
    /// [`Config::with_write_contention`](crate::Config::with_write_contention) at its last write,
    /// at most 500. A silent process ([`ProcessReport::silent`]) is left out.
    ///
    /// # Errors
    /// The errors of the store for the registry.
    pub async fn waiters(self, limit: usize) -> Result<Waiters> {
        let (own, source) = (self.engine.processes.node(), self.own_source());
        let of_own = self.present_waits(usize::MAX).into_iter().map(|wait| {
            let (number, process) = (source.number.clone(), source.process.clone());
            Waiter { wait, number, process, seen_ms: 0 }
        });
        let mut waiters: Vec<Waiter> = of_own.collect();
        let mut processes = Vec::new();
        let (mut alive, mut written) = (BTreeSet::new(), Vec::new());
        for signal in self.signals().await? {
            match signal {
                Signal::Process(entry) => {
                    let is_own = entry.node == own;
                    let recorded = is_own || entry.writes_contention;
                    let number = entry.number().to_owned();
                    if !is_own && !is_silent(&entry, since(self.engine, entry.renewed_ms)) {
                        alive.insert(entry.node);
                    }
                    processes.push(WaitSource { number, process: entry.process, recorded });
                }
                Signal::Waits(of_process) => written.push(of_process),
                Signal::UnreadableWaits => {}
            }
        }
        written.retain(|of_process| alive.contains(&of_process.node));
        for ProcessWaits { node, process, written_ms, present, .. } in written {
            let number = number_of(&node);
            let seen_ms = since(self.engine, written_ms);
            waiters.extend(present.into_iter().map(|wait| {
                let (number, process) = (number.to_owned(), process.clone());
                Waiter { wait, number, process, seen_ms }
            }));
        }
        waiters.sort_by_key(|waiter| {
            let PresentWait { waited_ms, tid, .. } = waiter.wait;
            (Reverse(waited_ms.saturating_add(waiter.seen_ms)), tid)
        });
        let truncated = waiters.len() > limit;
        waiters.truncate(limit);
        Ok(Waiters { waiters, truncated, processes })
    }

    /// The past waits of this process, without the process itself.
    fn own_contention(self) -> Contention {
        let (waits, total) = self.engine.contention.last(usize::MAX);
        let now_ms = self.engine.time.unix_millis();
        let mut contention = Contention { now_ms, ..Contention::default() };
        contention.add(waits, total);
        contention
    }

    fn own_source(self) -> WaitSource {
        let config = &self.engine.context.config;
        let number = number_of(&self.engine.processes.node()).to_owned();
        let (process, recorded) = (config.process_name.clone(), config.contention_waits > 0);
        WaitSource { number, process, recorded }
    }

    /// The processes of the domain. A registry that cannot be read is a fault.
    pub(super) async fn processes_or_fault(self, faults: &mut FaultList) -> Vec<ProcessReport> {
        let processes = self.processes().await;
        if let Err(error) = &processes {
            faults.note(REGISTRY, error);
        }
        processes.unwrap_or_default()
    }

    async fn signals(self) -> Result<Vec<Signal>> {
        let deadline = self.engine.context.deadline(self.engine.context.config.timeout);
        self.engine.processes.all(&deadline).await.map_err(AttemptError::into_error)
    }
}

/// The only item, if there is exactly one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

fn is_silent(entry: &ProcessEntry, unchanged_ms: u64) -> bool {
    unchanged_ms > entry.interval_ms.saturating_mul(MISSED_RENEWALS)
}

/// Names the process with this number in its tids. `None` if several processes share the number.
///
/// The result is the name of the process with its program and machine, and its application.
pub(super) fn process_of(
    entries: &[ProcessReport],
    number: ProcessNumber,
) -> Option<(String, Option<&str>)> {
    let number = number.to_string();
    let ProcessReport { entry, .. } =
        only(entries.iter().filter(|report| report.number == number))?;
    let ProcessEntry { process, program, host, application, .. } = entry;
    Some((format!("{process}, {program} on {host}"), application.as_deref()))
}
