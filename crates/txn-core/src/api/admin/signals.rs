//! The processes of the domain, and past waits for locks.

use serde::Serialize;

use super::Admin;
use super::scan::{FaultList, since};
use crate::engine::attempt_error::AttemptError;
use crate::engine::signals::contention::{LockWait, PresentWait};
use crate::engine::signals::process_entry::ProcessEntry;
use crate::engine::signals::processes::{ProcessWaits, Signal};
use crate::engine::table::REGISTRY;
use crate::error::Result;

/// The number of intervals without a renewal after which a process counts as silent.
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
    /// Whether the process missed its last renewals: it has ended, or does not reach the store.
    pub silent: bool,
}

/// Past waits for locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Contention {
    /// The waits, newest first.
    pub waits: Vec<LockWait>,
    /// Whether there were more waits than the answer has: beyond the limit, beyond the memory of a
    /// process, or in an entry that cannot be read.
    pub truncated: bool,
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
        let (waits, total) = self.engine.contention.last(limit);
        Contention { truncated: is_short_of(&waits, total), waits }
    }

    /// Returns the waits for locks of this process that have not ended, the longest first.
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
        let Contention { mut waits, mut truncated } = self.contention(limit);
        let own = self.engine.processes.node();
        for signal in self.signals().await? {
            match signal {
                Signal::Process(_) => {}
                // The memory of this process has all of its written waits.
                Signal::Waits(of_process) if of_process.node == own => {}
                Signal::Waits(ProcessWaits { waits: of_process, total, .. }) => {
                    truncated |= is_short_of(&of_process, total);
                    waits.extend(of_process);
                }
                Signal::UnreadableWaits => truncated = true,
            }
        }
        waits.sort_by(|a, b| (b.began_ms, b.tid, &b.id).cmp(&(a.began_ms, a.tid, &a.id)));
        // This process has another entry after a jump of its clock.
        waits.dedup();
        truncated |= waits.len() > limit;
        waits.truncate(limit);
        Ok(Contention { waits, truncated })
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

/// Whether a process had more waits than the list has.
fn is_short_of(waits: &[LockWait], total: u64) -> bool {
    u64::try_from(waits.len()).unwrap_or(u64::MAX) < total
}

fn is_silent(entry: &ProcessEntry, unchanged_ms: u64) -> bool {
    unchanged_ms > entry.interval_ms.saturating_mul(MISSED_RENEWALS)
}

/// The process with this number in its tids, unless several processes share the number.
///
/// The result is the name of the process with its program and machine, and its application.
pub(super) fn process_of(
    entries: &[ProcessReport],
    number: [u8; 2],
) -> Option<(String, Option<&str>)> {
    let [a, b] = number;
    let number = format!("{a:02x}{b:02x}");
    let mut named = entries.iter().filter(|report| report.number == number);
    let (Some(ProcessReport { entry, .. }), None) = (named.next(), named.next()) else {
        return None;
    };
    let ProcessEntry { process, program, host, application, .. } = entry;
    Some((format!("{process}, {program} on {host}"), application.as_deref()))
}
