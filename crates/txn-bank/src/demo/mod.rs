//! The demo: workers move money, and some are killed in the middle.
//!
//! Other workers finish their transactions, and the audit finds no difference. The final text comes
//! from the events and records of this run.

mod journal;
mod line;
mod progress;
mod report;
mod slow;
pub(crate) mod worker;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use txn_bank::{Audit, Bank, NewAccount};
use txn_cli::{Address, OpenStore};
use txn_core::TransactionOutcome;
use txn_core::clock::{Entropy, SystemEntropy};

use crate::console::args::Global;
use crate::console::failure::{Exit, Failure};
use crate::console::output::grouped;
use crate::console::{config, open_store};
use journal::{Fate, JANITOR, Journal, JournalEntry, name_of};
use line::{Line, LineObserver};
use progress::Progress;
use report::{Kill, Leftover, Report, StoreKind};
use slow::SlowStore;
use workers::{WorkerMessage, Workers};

/// The opening balance of each account.
pub(crate) const DEPOSIT: i64 = 10_000;

/// The number of concurrent workers, if the store admits several.
const WORKERS: usize = 3;

/// The maximum number of kills, until both kinds of leftovers occurred.
const KILLS: usize = 5;

/// How long workers work before a kill.
const WARM_UP: Duration = Duration::from_millis(1_500);

/// The longest wait for a good moment of a kill.
const MOMENT: Duration = Duration::from_secs(3);

/// How long survivors have to find the leftovers: over two leases.
const RECOVERY: Duration = Duration::from_millis(2_500);

pub(crate) async fn run(global: &Global) -> Result<Exit, Failure> {
    let mut temporary = None;
    let address = match &global.store {
        Some(address) => address.clone(),
        None => {
            let directory = tempfile::tempdir().map_err(|error| {
                Failure::misconfigured(format!("cannot make a temporary directory: {error}"))
            })?;
            let path = directory.path().join("demo.redb");
            temporary = Some(directory);
            Address::Redb(path)
        }
    };
    let mut global = global.clone();
    if global.domain == "bank" {
        // A separate domain, because the store may have other data.
        global.domain = format!("demo-{:06x}", SystemEntropy.next_u64() >> 40);
    }
    let store_kind = match &address {
        Address::Redb(_) => StoreKind::File,
        Address::Memory => StoreKind::Memory,
        Address::Servers(_) | Address::Cloud(_) => StoreKind::Servers,
    };
    let shown = match (&temporary, &address) {
        (Some(_), _) => None,
        (None, address) => Some(address.to_string()),
    };
    let report = Box::pin(Demo::run(&global, &address, store_kind, shown)).await?;
    let clean = report.audit.is_clean();
    let written = match global.json {
        true => crate::console::output::print_json(&report),
        false => crate::console::output::print(&report.to_string()),
    };
    drop(temporary);
    crate::console::exit_after(written, if clean { Exit::Done } else { Exit::Found })
}

struct Demo {
    began: Instant,
    store_kind: StoreKind,
    workers: Workers,
    messages: UnboundedReceiver<WorkerMessage>,
    journal: Journal,
    kills: Vec<Kill>,
    progress: Progress,
}

impl Demo {
    async fn run(
        global: &Global,
        address: &Address,
        store_kind: StoreKind,
        shown: Option<String>,
    ) -> Result<Report, Failure> {
        let began = Instant::now();
        let progress = Progress::new(began, global.json);
        let mut open = open_store(address, global, true).await?;
        if store_kind == StoreKind::Memory {
            open.store = Arc::new(SlowStore(open.store.clone()));
        }
        let store = open.what.clone();
        let bank =
            Bank::create(open.store.clone(), &global.domain, config().with_janitor_interval(None))
                .await?;
        let accounts: Result<Vec<NewAccount>, _> =
            worker::NAMES.iter().map(|name| NewAccount::new(name, name, DEPOSIT, "EUR")).collect();
        bank.ensure_accounts(&accounts?).await?;
        bank.shutdown(Duration::from_secs(10)).await;
        drop(bank);
        let (many, deposit) = (worker::NAMES.len(), grouped(DEPOSIT));
        progress.say(format_args!("{many} accounts of {deposit} EUR are open"));
        let memory = (store_kind == StoreKind::Memory).then(|| open.clone());
        open.close().await;
        let (workers, messages) = Workers::new(global, address, memory.clone(), began);
        let (journal, kills) = (Journal::default(), Vec::new());
        let mut demo = Self { began, store_kind, workers, messages, journal, kills, progress };
        demo.kill_workers().await?;
        demo.progress.say("the janitor scans for leftovers, and the audit checks all balances");
        let open = match memory {
            Some(memory) => memory,
            None => open_store(address, global, false).await?,
        };
        let audit = demo.settle(&open, &global.domain).await;
        open.close().await;
        let audit = audit?;
        demo.progress.end();
        Ok(demo.report(store, shown, global, audit))
    }

    /// Kills workers until both kinds of leftovers were recovered, or too often.
    async fn kill_workers(&mut self) -> Result<(), Failure> {
        let most_workers = if self.store_kind == StoreKind::File { 1 } else { WORKERS };
        for round in 1..=KILLS {
            while self.workers.numbers().len() < most_workers {
                self.workers.start()?;
            }
            let Some(victim) = self.workers.numbers().first().copied() else { break };
            let all = self.workers.numbers().iter().map(usize::to_string).collect::<Vec<_>>();
            self.progress.say(format_args!("moving money: worker {}", all.join(", ")));
            self.wait_for_kill_moment(victim).await?;
            let at = self.began.elapsed();
            self.workers.kill(victim).await;
            self.drain_messages(victim).await;
            let (held, committed) = self.journal.under_way(victim);
            self.progress.say(format_args!(
                "worker {victim} is killed; transactions with locks: {held}, committed and not applied: {committed}"
            ));
            self.kills.push(Kill { worker: victim, at_ms: at.as_millis(), leftovers: Vec::new() });
            // On a file no other worker runs yet: the next worker recovers, or the janitor.
            if self.store_kind == StoreKind::File {
                if round >= 2 && self.has_both_kinds(true) {
                    break;
                }
                self.workers.start()?;
            }
            self.record_for(RECOVERY).await?;
            if self.store_kind != StoreKind::File && self.has_both_kinds(false) {
                break;
            }
        }
        self.progress.say("the other workers end");
        self.workers.stop().await?;
        while let Ok(message) = self.messages.try_recv() {
            self.record(message);
        }
        Ok(())
    }

    fn record(&mut self, message: WorkerMessage) -> Option<usize> {
        match message {
            WorkerMessage::Line(entry) => {
                self.record_entry(entry);
                None
            }
            WorkerMessage::Exited(worker) => Some(worker),
        }
    }

    /// Notes a line, and prints the fate of a killed worker's transaction.
    fn record_entry(&mut self, entry: JournalEntry) {
        if let Some((tid, fate)) = Fate::of(&entry)
            && let Some(kill) =
                self.kills.iter().find(|k| self.journal.is_leftover_of(k.worker, tid))
            && self.journal.fate(kill.worker, tid).is_none()
        {
            let how = match fate {
                Fate::RolledForward { .. } => "writes out",
                Fate::AbortedByRecovery { .. } => "voids",
                Fate::Wounded { .. } => "takes the locks of",
            };
            let (by, left_by) = (name_of(entry.worker), name_of(kill.worker));
            self.progress.say(format_args!("{by} {how} {tid}, which {left_by} left behind"));
        }
        self.journal.record(entry);
    }

    /// Whether leftovers were rolled forward and voided.
    ///
    /// On a file, leftovers for the janitor count, too.
    fn has_both_kinds(&self, with_janitor: bool) -> bool {
        let (mut rolled_forward, mut voided) = (false, false);
        for kill in &self.kills {
            for (tid, attempt) in self.journal.leftovers_of(kill.worker) {
                match self.journal.fate(kill.worker, tid) {
                    Some(Fate::RolledForward { .. }) => rolled_forward = true,
                    Some(_) => voided = true,
                    None if with_janitor => {
                        rolled_forward |= attempt.committed.is_some();
                        voided |= attempt.committed.is_none() && !attempt.locked.is_empty();
                    }
                    None => {}
                }
            }
        }
        rolled_forward && voided
    }

    /// Waits for a moment at which the worker certainly holds locks.
    ///
    /// The worker has just reported an unapplied commit, and another of its transactions holds
    /// locks without a commit.
    async fn wait_for_kill_moment(&mut self, victim: usize) -> Result<(), Failure> {
        let mut warm = None;
        let late = Instant::now() + MOMENT + WARM_UP;
        loop {
            let now = Instant::now();
            let message = timeout(Duration::from_millis(200), self.messages.recv()).await;
            let mut just_committed = false;
            if let Ok(Some(message)) = message {
                let of_victim = |line: &Line| matches!(line, Line::Committed { .. });
                just_committed = matches!(&message, WorkerMessage::Line(t) if t.worker == victim && of_victim(&t.line));
                self.record_of_running(message)?;
            }
            if warm.is_none() && self.journal.pids.contains_key(&victim) {
                warm = Some(now + WARM_UP);
            }
            let Some(warm) = warm else {
                if now > late + Duration::from_secs(20) {
                    return Err(Failure::misconfigured("the workers of the demo do not begin"));
                }
                continue;
            };
            let (held, committed) = self.journal.under_way(victim);
            let good = just_committed && held > 0 && committed > 0;
            if now >= warm && (good || (now >= late && (held > 0 || now >= late + MOMENT))) {
                return Ok(());
            }
        }
    }

    /// Receives the last lines of a dead worker.
    async fn drain_messages(&mut self, victim: usize) {
        while let Ok(Some(message)) = timeout(Duration::from_secs(5), self.messages.recv()).await {
            if self.record(message) == Some(victim) {
                return;
            }
        }
    }

    async fn record_for(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, self.messages.recv()).await {
                Ok(Some(message)) => self.record_of_running(message)?,
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    /// No worker may end before it is killed.
    fn record_of_running(&mut self, message: WorkerMessage) -> Result<(), Failure> {
        match self.record(message) {
            Some(worker) => {
                Err(Failure::misconfigured(format!("worker {worker} of the demo ended by itself")))
            }
            None => Ok(()),
        }
    }

    /// Runs the janitor, reads the records, and audits the bank.
    async fn settle(&mut self, open: &OpenStore, domain: &str) -> Result<Audit, Failure> {
        let (entries, mut received) = tokio::sync::mpsc::unbounded_channel();
        let began = self.began;
        let observer = LineObserver(move |line| {
            let _ = entries.send(JournalEntry { at: began.elapsed(), worker: JANITOR, line });
        });
        let config = config().with_janitor_interval(None).with_observer(Some(Arc::new(observer)));
        let bank = Bank::open(open.store.clone(), domain, config).await?;
        let audit = Box::pin(bank.audit(true)).await;
        while let Ok(entry) = received.try_recv() {
            self.record_entry(entry);
        }
        for kill in &mut self.kills {
            for (tid, attempt) in self.journal.leftovers_of(kill.worker) {
                let fate = self.journal.fate(kill.worker, tid);
                if attempt.locked.is_empty() && attempt.committed.is_none() && fate.is_none() {
                    continue;
                }
                let record = match bank.outcome(tid).await {
                    Ok(TransactionOutcome::Committed { .. }) => Some("committed"),
                    Ok(TransactionOutcome::Aborted) => Some("aborted"),
                    Ok(_) | Err(_) => None,
                };
                kill.leftovers.push(Leftover { tid, attempt, fate, record });
            }
        }
        bank.shutdown(Duration::from_secs(10)).await;
        Ok(audit?)
    }

    fn report(self, store: String, shown: Option<String>, global: &Global, audit: Audit) -> Report {
        let journal = self.journal;
        Report {
            store_kind: self.store_kind,
            store,
            address: shown,
            domain: global.domain.clone(),
            seconds: self.began.elapsed().as_secs_f64(),
            workers: journal.pids.clone(),
            committed: journal.committed.values().sum(),
            retries: journal.count(|line| matches!(line, Line::Aborted { retried: true, .. })),
            waits: journal.count(|line| matches!(line, Line::Waiting { .. })),
            wounded: journal.count(|line| matches!(line, Line::Wounded { .. })),
            failed: journal.count(|line| matches!(line, Line::Failed { .. })),
            wounds: journal.wounds(),
            kills: self.kills,
            audit,
        }
    }
}
