//! The report of a run, in words, from its events and records.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::Serialize;
use txn_bank::Audit;
use txn_core::AttemptId;

use crate::console::output::grouped;
use crate::demo::DEPOSIT;
use crate::demo::journal::{Fate, OpenAttempt, Wound, name_of};
use crate::demo::worker::{AT_ONCE, NAMES, THINK_MS};

/// The number of fully described transactions per kill.
const MOST_DESCRIBED: usize = 4;

/// The kind of store of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreKind {
    /// An embedded file: one worker process at a time.
    File,
    /// Servers: several concurrent worker processes.
    Servers,
    /// The memory of this process: workers are runtimes in it.
    Memory,
}

/// A killed worker, and its leftovers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kill {
    pub(crate) worker: usize,
    pub(crate) at_ms: u128,
    #[serde(rename = "left")]
    pub(crate) leftovers: Vec<Leftover>,
}

/// A transaction of a killed worker.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Leftover {
    pub(crate) tid: AttemptId,
    #[serde(flatten)]
    pub(crate) attempt: OpenAttempt,
    #[serde(flatten)]
    pub(crate) fate: Option<Fate>,
    /// The state of the record at the end.
    pub(crate) record: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    #[serde(rename = "place")]
    pub(crate) store_kind: StoreKind,
    pub(crate) store: String,
    pub(crate) address: Option<String>,
    pub(crate) domain: String,
    pub(crate) seconds: f64,
    pub(crate) workers: BTreeMap<usize, u32>,
    pub(crate) committed: u64,
    pub(crate) retries: usize,
    pub(crate) waits: usize,
    pub(crate) wounded: usize,
    pub(crate) failed: usize,
    pub(crate) wounds: Vec<Wound>,
    pub(crate) kills: Vec<Kill>,
    pub(crate) audit: Audit,
}

fn seconds(ms: u128) -> String {
    format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10)
}

fn list<T: AsRef<str>>(documents: impl IntoIterator<Item = T>) -> String {
    let all: Vec<T> = documents.into_iter().collect();
    all.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ")
}

impl Report {
    fn write_setup(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (accounts, deposit) = (NAMES.len(), grouped(DEPOSIT));
        writeln!(f, "1. {accounts} accounts of {deposit} EUR each, on {}.", self.store)?;
        let pids: Vec<String> =
            self.workers.iter().map(|(n, pid)| format!("{n} (pid {pid})")).collect();
        match self.store_kind {
            StoreKind::Servers => {
                writeln!(f, "2. Worker processes, three at a time: {}.", list(pids))?;
            }
            StoreKind::File => writeln!(
                f,
                "2. Worker processes, one after the other, because one process at a time owns the file: {}.",
                list(pids)
            )?,
            StoreKind::Memory => writeln!(
                f,
                "2. {} workers, three at a time: runtimes within this one process, each with an engine of its own;\n   \
                 a request to the store takes a millisecond or two. (Use a file or a server to see processes die.)",
                self.workers.len()
            )?,
        }
        writeln!(
            f,
            "   Each has {AT_ONCE} transfers of 2 to 8 legs under way; every other one locks what it reads and\n   \
             then thinks for {THINK_MS} ms. {} transfers committed; {} times one waited for an older one;\n   \
             {} times an older one wounded a younger one; {} attempts were started over.",
            grouped(self.committed),
            grouped(self.waits as i128),
            grouped(self.wounded as i128),
            grouped(self.retries as i128)
        )?;
        if self.failed > 0 {
            writeln!(f, "   {} transfers failed with an error.", self.failed)?;
        }
        // A wound between two workers is more instructive than a wound within a worker.
        let wounds = &self.wounds;
        let across = wounds.iter().find(|w| w.worker != w.victim_worker);
        if let Some(wound) = across.or(wounds.first()) {
            writeln!(
                f,
                "   One of these, at {}: {} of {}, the older one, took {} from\n   {} of {}, \
                 which began again, kept its age, and committed as attempt {}.",
                seconds(wound.at_ms),
                wound.by,
                name_of(wound.worker),
                wound.document,
                wound.victim,
                name_of(wound.victim_worker),
                wound.committed_as_attempt
            )?;
        }
        Ok(())
    }

    fn write_kill(&self, f: &mut fmt::Formatter<'_>, kill: &Kill) -> fmt::Result {
        let Kill { worker, at_ms, leftovers } = kill;
        let how = match (self.store_kind, self.workers.get(worker)) {
            (StoreKind::Memory, _) => "its runtime was dropped with all its tasks".to_owned(),
            (_, Some(pid)) => format!("kill -9 {pid}"),
            (_, None) => "SIGKILL".to_owned(),
        };
        let held = leftovers.iter().filter(|l| !l.attempt.locked.is_empty()).count();
        writeln!(
            f,
            "   At {}: worker {worker} is killed ({how}) with {held} transactions that hold locks.",
            seconds(*at_ms)
        )?;
        let (committed, open): (Vec<&Leftover>, Vec<&Leftover>) =
            leftovers.iter().partition(|l| l.attempt.committed.is_some());
        // The last kills are the most instructive, because the run ends after both kinds of
        // leftovers.
        let late = self.kills.iter().rev().take(3).any(|k| k.worker == *worker);
        let most_shown = match self.kills.len() {
            0..=2 => MOST_DESCRIBED,
            _ if late => MOST_DESCRIBED / 2,
            _ => 0,
        };
        let mut shown: Vec<&Leftover> = committed.into_iter().take(most_shown / 2).collect();
        shown.extend(open.into_iter().take(most_shown - shown.len()));
        let more = leftovers.len() - shown.len();
        for leftover in shown {
            self.write_leftover(f, leftover)?;
        }
        if more > 0 {
            writeln!(f, "     and {more} more, by the same rules.")?;
        }
        Ok(())
    }

    fn write_leftover(&self, f: &mut fmt::Formatter<'_>, leftover: &Leftover) -> fmt::Result {
        let Leftover { tid, attempt, fate, record } = leftover;
        let state = match attempt.committed {
            Some(written) => format!("committed, its {written} documents perhaps not applied"),
            None => "not committed, as far as it knew".to_owned(),
        };
        writeln!(f, "   - {tid}: {state}; it held")?;
        let locked = match attempt.locked.is_empty() {
            true => "no lock that it knew of".to_owned(),
            false => list(&attempt.locked),
        };
        writeln!(f, "     {locked}.")?;
        let record = match record {
            Some(record) => format!("Its record says: {record}."),
            None => "Its record was not read.".to_owned(),
        };
        match fate {
            Some(Fate::RolledForward { by, at_ms, documents }) => writeln!(
                f,
                "     ROLLED FORWARD by {} at {}: {} documents written as committed. {record}",
                name_of(*by),
                seconds(*at_ms),
                documents.len()
            ),
            Some(Fate::AbortedByRecovery { by, at_ms, document }) => writeln!(
                f,
                "     VOIDED by {} at {}, which found its lock on {document}: no heartbeat for a lease. {record}",
                name_of(*by),
                seconds(*at_ms)
            ),
            Some(Fate::Wounded { by, by_tid, at_ms, document }) => writeln!(
                f,
                "     WOUNDED at {} by {by_tid} of {}, an older one that wanted {document}. {record}",
                seconds(*at_ms),
                name_of(*by)
            ),
            None => writeln!(f, "     No other process had to act. {record}"),
        }
    }

    fn write_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leftovers = || self.kills.iter().flat_map(|kill| &kill.leftovers);
        let count =
            |is: fn(&Fate) -> bool| leftovers().filter(|l| l.fate.as_ref().is_some_and(is)).count();
        let rolled_forward = count(|fate| matches!(fate, Fate::RolledForward { .. }));
        let undone = count(|fate| !matches!(fate, Fate::RolledForward { .. }));
        let all = leftovers().count();
        write!(f, "   In short: {all} transactions were cut off.")?;
        if rolled_forward > 0 {
            write!(f, " Committed ones that other processes applied: {rolled_forward}.")?;
        }
        if undone > 0 {
            write!(f, " Uncommitted ones that came to nothing: {undone}.")?;
        }
        if rolled_forward + undone < all {
            write!(f, " Ones that needed no recovery: {}.", all - rolled_forward - undone)?;
        }
        writeln!(f)?;
        if self.audit.is_clean() {
            writeln!(f, "   No unit of money was made or lost.")?;
        }
        Ok(())
    }

    fn write_audit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let audit = &self.audit;
        writeln!(
            f,
            "4. Audit: {} accounts, {} deposits, {} transfers.",
            audit.accounts,
            audit.deposits,
            grouped(audit.transfers as i128)
        )?;
        for total in &audit.totals {
            writeln!(
                f,
                "   {}: {} paid in, {} held.",
                total.currency,
                grouped(total.expected),
                grouped(total.found)
            )?;
        }
        for finding in &audit.findings {
            writeln!(f, "   FOUND: {finding}")?;
        }
        if audit.is_clean() {
            writeln!(
                f,
                "   Every balance is what the ledger says; no lock is left, no transaction is open, nothing is damaged."
            )?;
        }
        self.write_summary(f)?;
        write!(f, "   {:.0} seconds in all.", self.seconds)?;
        match &self.address {
            Some(address) if self.store_kind != StoreKind::Memory => {
                write!(
                    f,
                    " Check it yourself: txn-bank --store {address} --domain {} audit",
                    self.domain
                )
            }
            _ => Ok(()),
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setup(f)?;
        writeln!(f, "3. The kills, and what became of what they left:")?;
        for kill in &self.kills {
            self.write_kill(f, kill)?;
        }
        self.write_audit(f)
    }
}
