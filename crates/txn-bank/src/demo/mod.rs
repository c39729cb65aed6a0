//! The demo: workers move money, and some are killed in the middle.
//!
//! Other workers finish their transactions, and the audit finds no difference. The final text comes
//! from the events and records of this run.

mod crew;
mod journal;
mod line;
mod progress;
mod slow;
mod story;
pub(crate) mod worker;

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
use crew::{Crew, Heard};
use journal::{Fate, JANITOR, Journal, Told, who};
use line::{Line, Teller};
use progress::Progress;
use slow::SlowStore;
use story::{Kill, Left, Place, Story};

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
    let place = match &address {
        Address::Redb(_) => Place::File,
        Address::Memory => Place::Memory,
        Address::Servers(_) | Address::Cloud(_) => Place::Servers,
    };
    let shown = match (&temporary, &address) {
        (Some(_), _) => None,
        (None, address) => Some(address.to_string()),
    };
    let story = Box::pin(Demo::play(&global, &address, place, shown)).await?;
    let clean = story.audit.is_clean();
    let written = match global.json {
        true => crate::console::output::print_json(&story),
        false => crate::console::output::print(&story.to_string()),
    };
    drop(temporary);
    crate::console::said(written, if clean { Exit::Done } else { Exit::Found })
}

struct Demo {
    began: Instant,
    place: Place,
    crew: Crew,
    hearing: UnboundedReceiver<Heard>,
    journal: Journal,
    kills: Vec<Kill>,
    progress: Progress,
}

impl Demo {
    async fn play(
        global: &Global,
        address: &Address,
        place: Place,
        shown: Option<String>,
    ) -> Result<Story, Failure> {
        let began = Instant::now();
        let progress = Progress::new(began, global.json);
        let mut open = open_store(address, global, true).await?;
        if place == Place::Memory {
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
        let memory = (place == Place::Memory).then(|| open.clone());
        open.close().await;
        let (crew, hearing) = Crew::new(global, address, memory.clone(), began);
        let (journal, kills) = (Journal::default(), Vec::new());
        let mut demo = Self { began, place, crew, hearing, journal, kills, progress };
        demo.act().await?;
        demo.progress.say("the janitor scans for leftovers, and the audit checks all balances");
        let open = match memory {
            Some(memory) => memory,
            None => open_store(address, global, false).await?,
        };
        let audit = demo.settle(&open, &global.domain).await;
        open.close().await;
        let audit = audit?;
        demo.progress.end();
        Ok(demo.story(store, shown, global, audit))
    }

    /// Kills workers until both kinds of leftovers were recovered, or too often.
    async fn act(&mut self) -> Result<(), Failure> {
        let crowd = if self.place == Place::File { 1 } else { WORKERS };
        for round in 1..=KILLS {
            while self.crew.numbers().len() < crowd {
                self.crew.start()?;
            }
            let Some(victim) = self.crew.numbers().first().copied() else { break };
            let all = self.crew.numbers().iter().map(usize::to_string).collect::<Vec<_>>();
            self.progress.say(format_args!("moving money: worker {}", all.join(", ")));
            self.wait_for_the_moment(victim).await?;
            let at = self.began.elapsed();
            self.crew.kill(victim).await;
            self.hear_the_last(victim).await;
            let (held, committed) = self.journal.under_way(victim);
            self.progress.say(format_args!(
                "worker {victim} is killed; transactions with locks: {held}, committed and not applied: {committed}"
            ));
            self.kills.push(Kill { worker: victim, at_ms: at.as_millis(), left: Vec::new() });
            // On a file no other worker runs yet: the next worker recovers, or the janitor.
            if self.place == Place::File {
                if round >= 2 && self.both_kinds(true) {
                    break;
                }
                self.crew.start()?;
            }
            self.listen(RECOVERY).await?;
            if self.place != Place::File && self.both_kinds(false) {
                break;
            }
        }
        self.progress.say("the other workers end");
        self.crew.stop().await?;
        while let Ok(heard) = self.hearing.try_recv() {
            self.note(heard);
        }
        Ok(())
    }

    fn note(&mut self, heard: Heard) -> Option<usize> {
        match heard {
            Heard::Told(told) => {
                self.hear(told);
                None
            }
            Heard::Gone(worker) => Some(worker),
        }
    }

    /// Notes a line, and prints the fate of a killed worker's transaction.
    fn hear(&mut self, told: Told) {
        if let Some((tid, fate)) = Fate::of(&told)
            && let Some(kill) = self.kills.iter().find(|k| self.journal.is_left_by(k.worker, tid))
            && self.journal.fate(kill.worker, tid).is_none()
        {
            let how = match fate {
                Fate::Replayed { .. } => "writes out",
                Fate::AbortedByRecovery { .. } => "voids",
                Fate::Wounded { .. } => "takes the locks of",
            };
            let (by, left_by) = (who(told.worker), who(kill.worker));
            self.progress.say(format_args!("{by} {how} {tid}, which {left_by} left behind"));
        }
        self.journal.take(told);
    }

    /// Whether leftovers were rolled forward and voided.
    ///
    /// On a file, leftovers for the janitor count, too.
    fn both_kinds(&self, foreseen: bool) -> bool {
        let (mut replayed, mut voided) = (false, false);
        for kill in &self.kills {
            for (tid, flight) in self.journal.left_by(kill.worker) {
                match self.journal.fate(kill.worker, tid) {
                    Some(Fate::Replayed { .. }) => replayed = true,
                    Some(_) => voided = true,
                    None if foreseen => {
                        replayed |= flight.committed.is_some();
                        voided |= flight.committed.is_none() && !flight.locked.is_empty();
                    }
                    None => {}
                }
            }
        }
        replayed && voided
    }

    /// Waits for a moment at which the worker certainly holds locks.
    ///
    /// The worker has just reported an unapplied commit, and another of its transactions holds
    /// locks without a commit.
    async fn wait_for_the_moment(&mut self, victim: usize) -> Result<(), Failure> {
        let mut warm = None;
        let late = Instant::now() + MOMENT + WARM_UP;
        loop {
            let now = Instant::now();
            let heard = timeout(Duration::from_millis(200), self.hearing.recv()).await;
            let mut just_committed = false;
            if let Ok(Some(heard)) = heard {
                let of_victim = |line: &Line| matches!(line, Line::Committed { .. });
                just_committed =
                    matches!(&heard, Heard::Told(t) if t.worker == victim && of_victim(&t.line));
                self.note_living(heard)?;
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
    async fn hear_the_last(&mut self, victim: usize) {
        while let Ok(Some(heard)) = timeout(Duration::from_secs(5), self.hearing.recv()).await {
            if self.note(heard) == Some(victim) {
                return;
            }
        }
    }

    async fn listen(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, self.hearing.recv()).await {
                Ok(Some(heard)) => self.note_living(heard)?,
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    /// No worker may end before it is killed.
    fn note_living(&mut self, heard: Heard) -> Result<(), Failure> {
        match self.note(heard) {
            Some(worker) => {
                Err(Failure::misconfigured(format!("worker {worker} of the demo ended by itself")))
            }
            None => Ok(()),
        }
    }

    /// Runs the janitor, reads the records, and audits the bank.
    async fn settle(&mut self, open: &OpenStore, domain: &str) -> Result<Audit, Failure> {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let began = self.began;
        let observer = Teller(move |line| {
            let _ = tell.send(Told { at: began.elapsed(), worker: JANITOR, line });
        });
        let config = config().with_janitor_interval(None).with_observer(Some(Arc::new(observer)));
        let bank = Bank::open(open.store.clone(), domain, config).await?;
        let audit = Box::pin(bank.audit(true)).await;
        while let Ok(told) = told.try_recv() {
            self.hear(told);
        }
        for kill in &mut self.kills {
            for (tid, flight) in self.journal.left_by(kill.worker) {
                let fate = self.journal.fate(kill.worker, tid);
                if flight.locked.is_empty() && flight.committed.is_none() && fate.is_none() {
                    continue;
                }
                let record = match bank.outcome(tid).await {
                    Ok(TransactionOutcome::Committed { .. }) => Some("committed"),
                    Ok(TransactionOutcome::Aborted) => Some("aborted"),
                    Ok(_) | Err(_) => None,
                };
                kill.left.push(Left { tid, flight, fate, record });
            }
        }
        bank.shutdown(Duration::from_secs(10)).await;
        Ok(audit?)
    }

    fn story(self, store: String, shown: Option<String>, global: &Global, audit: Audit) -> Story {
        let journal = self.journal;
        Story {
            place: self.place,
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
