//! A load: many concurrent transfers, and their times.

mod latency;
mod submitted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;
use txn_core::event::{Event, Observer};
use txn_core::{AttemptId, ErrorKind, Options, TransactionOutcome};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::{Leg, NewAccount};
use crate::transfers::transfer::{Status, TransferOptions};

use latency::Latency;
pub use submitted::SubmittedReport;

/// The opening balance of each account of a load.
const DEPOSIT: i64 = 1_000_000;

/// The number of accounts that one transaction opens.
const OPENED_AT_ONCE: usize = 50;

/// The pause after a failed transaction. Protects a store that is down.
const PAUSE: Duration = Duration::from_millis(100);

/// How long running transfers may continue after the end of the load.
const FINISH: Duration = Duration::from_secs(1);

/// The time at the end for unknown outcomes and unapplied commits.
const WRAP_UP: Duration = Duration::from_secs(5);

/// The reported quantiles.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// The settings of a load.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load {
    /// The number of accounts (`load-0001` and on), opened at first use.
    pub accounts: usize,
    /// The number of legs of each transfer.
    pub legs: usize,
    /// The number of concurrent transfers.
    pub workers: usize,
    /// The duration of the load.
    pub duration: Duration,
    /// The number of accounts in use, if only the first ones are.
    pub hot: Option<usize>,
}

impl Load {
    /// Creates the settings of a load.
    ///
    /// # Errors
    /// [`BankError::InvalidLoad`] with the reason, if the settings are not valid.
    pub fn new(
        accounts: usize,
        legs: usize,
        workers: usize,
        duration: Duration,
        hot: Option<usize>,
    ) -> Result<Self> {
        let refuse = |why: String| Err(BankError::InvalidLoad(why));
        let used = hot.unwrap_or(accounts);
        if legs < 2 {
            return refuse(format!("a transfer needs at least two legs, not {legs}"));
        }
        if used > accounts {
            return refuse(format!("{used} hot accounts of {accounts}"));
        }
        if legs > used {
            return refuse(format!("{legs} legs over {used} accounts"));
        }
        if workers == 0 || accounts > 1_000_000 || legs > 1_000 || workers > 10_000 {
            return refuse(
                "use 1 to 10,000 workers, at most 1,000,000 accounts and 1,000 legs".into(),
            );
        }
        Ok(Self { accounts, legs, workers, duration, hot })
    }
}

/// Counts events, as an observer of the domain's configuration.
#[derive(Debug, Default)]
pub struct Tally {
    waits: AtomicU64,
    wounds: AtomicU64,
    retries: AtomicU64,
    recovered: AtomicU64,
}

impl Observer for Tally {
    fn on_event(&self, event: &Event) {
        let counter = match event {
            Event::Waiting { .. } => &self.waits,
            Event::Wounded { .. } => &self.wounds,
            Event::Aborted { retried: true, .. } => &self.retries,
            Event::RolledForward { .. } | Event::AbortedByRecovery { .. } => &self.recovered,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tally {
    /// Adds the counts to a report.
    fn add_to(&self, report: &mut LoadReport) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        report.wounds = count(&self.wounds);
        report.conflicts = count(&self.waits) + report.wounds;
        report.retries = count(&self.retries);
        report.recovered = count(&self.recovered);
    }
}

/// Receives the progress of a load, a few times per second.
pub type Progress = dyn Fn(Duration, u64, u64) + Send + Sync;

/// The results of a load.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// The number of accounts that this load opened.
    pub opened: usize,
    /// The seconds from the first transfer to the last.
    pub seconds: f64,
    /// The number of committed transfers, including those resolved at the end.
    pub committed: u64,
    /// The committed transfers per second.
    pub per_second: f64,
    /// The latencies of committed transfers with all attempts, in milliseconds, by quantile.
    pub latency_ms: BTreeMap<&'static str, f64>,
    /// The number of conflicts: waits for older, and wounds of younger transactions.
    pub conflicts: u64,
    /// The number of younger transactions that older ones aborted.
    pub wounds: u64,
    /// The number of retried attempts.
    pub retries: u64,
    /// The largest number of attempts of a committed transfer.
    pub most_attempts: u32,
    /// The number of transactions that were recovered or rolled forward.
    pub recovered: u64,
    /// The number of failed transfers, by kind of error.
    pub errors: BTreeMap<String, u64>,
    /// The text of the last error.
    pub last_error: Option<String>,
    /// The number of unknown outcomes that were resolved as committed.
    pub settled_committed: u64,
    /// The number of unknown outcomes that were resolved as aborted.
    pub settled_aborted: u64,
    /// The transactions with a still unknown outcome.
    pub unsettled: Vec<AttemptId>,
    /// Whether all commits were applied at the end.
    pub drained: bool,
    /// Whether the load was stopped early.
    pub interrupted: bool,
}

struct Tracks {
    latency: Latency,
    committed: u64,
    failed: u64,
    most_attempts: u32,
    errors: BTreeMap<String, u64>,
    last_error: Option<String>,
    unknown: Vec<AttemptId>,
}

impl Tracks {
    fn new() -> Result<Self> {
        Ok(Self {
            latency: Latency::new()?,
            committed: 0,
            failed: 0,
            most_attempts: 0,
            errors: BTreeMap::new(),
            last_error: None,
            unknown: Vec::new(),
        })
    }
}

impl Load {
    fn account(number: usize) -> String {
        format!("load-{number:04}")
    }

    /// Runs the load, until its time is over or `stop` returns.
    ///
    /// The domain of the bank must report its events to `tally`. No transfer starts afterwards, and
    /// running ones have one second. Then the load resolves unknown outcomes, and ends with
    /// [`Bank::shutdown`], both within five seconds.
    ///
    /// # Errors
    /// Errors of the engine while accounts are opened. Failed transfers are only counted.
    pub async fn run(
        &self,
        bank: &Bank,
        tally: &Tally,
        stop: impl Future<Output = ()> + Send,
        progress: &Progress,
    ) -> Result<LoadReport> {
        let mut stop = std::pin::pin!(stop);
        let opened = tokio::select! {
            opened = self.open(bank) => opened?,
            () = &mut stop => {
                let drained = bank.shutdown(WRAP_UP).await;
                return Ok(LoadReport { drained, interrupted: true, ..LoadReport::default() });
            }
        };
        let tracks = Arc::new(Mutex::new(Tracks::new()?));
        let began = Instant::now();
        let end = began + self.duration;
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            let (bank, load, tracks) = (bank.clone(), self.clone(), tracks.clone());
            workers.spawn(async move { load.work(&bank, &tracks, end).await });
        }
        let mut interrupted = false;
        let mut tick = tokio::time::interval(Duration::from_millis(250));
        loop {
            tokio::select! {
                joined = workers.join_next() => match joined {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(error)) if error.is_cancelled() => {}
                    Some(Err(error)) => {
                        *tracks.lock().errors.entry(format!("task: {error}")).or_default() += 1;
                    }
                },
                () = &mut stop, if !interrupted => {
                    interrupted = true;
                    // A dropped transfer rolls back if uncommitted. A commit under way continues.
                    workers.abort_all();
                }
                _ = tick.tick() => {
                    let (committed, failed) = { let t = tracks.lock(); (t.committed, t.failed) };
                    progress(began.elapsed(), committed, failed);
                }
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let until = Instant::now() + WRAP_UP;
        let mut report = self.settle(bank, &tracks, until).await;
        report.drained = bank.shutdown(until.saturating_duration_since(Instant::now())).await;
        report.per_second = if seconds > 0.0 { report.committed as f64 / seconds } else { 0.0 };
        (report.opened, report.seconds, report.interrupted) = (opened, seconds, interrupted);
        tally.add_to(&mut report);
        Ok(report)
    }

    async fn open(&self, bank: &Bank) -> Result<usize> {
        let accounts: Result<Vec<NewAccount>> = (1..=self.accounts)
            .map(|n| NewAccount::new(&Self::account(n), "load", DEPOSIT, "EUR"))
            .collect();
        let mut opened = 0;
        for chunk in accounts?.chunks(OPENED_AT_ONCE) {
            let mut tries = 0;
            opened += loop {
                match bank.ensure_accounts(chunk).await {
                    Err(BankError::Engine(error))
                        if error.kind().is_transient_or_unknown() && tries < 5 =>
                    {
                        tries += 1;
                        tokio::time::sleep(PAUSE * 5).await;
                    }
                    ensured => break ensured?,
                }
            };
        }
        Ok(opened)
    }

    async fn work(&self, bank: &Bank, tracks: &Mutex<Tracks>, end: Instant) {
        loop {
            let began = Instant::now();
            if began >= end {
                return;
            }
            let legs = self.legs(bank);
            let deadline = Options::default().with_timeout(Some(end + FINISH - began));
            let options = TransferOptions::default().with_transaction(deadline);
            let done = bank.transfer_with(None, &legs, &options).await;
            let took = began.elapsed();
            let failed = {
                let mut tracks = tracks.lock();
                match done {
                    Ok(done) => {
                        debug_assert_eq!(done.status, Status::Done);
                        tracks.committed += 1;
                        tracks.most_attempts = tracks.most_attempts.max(done.attempts);
                        tracks.latency.record(took);
                        false
                    }
                    Err(error) => {
                        tracks.failed += 1;
                        *tracks.errors.entry(kind_of(&error)).or_default() += 1;
                        tracks.last_error = Some(error.to_string());
                        if let BankError::Engine(error) = &error
                            && let (ErrorKind::Unknown, Some(tid)) = (error.kind(), error.tid())
                        {
                            tracks.unknown.push(tid);
                        }
                        true
                    }
                }
            };
            if failed {
                tokio::time::sleep(PAUSE.min(end.saturating_duration_since(Instant::now()))).await;
            }
        }
    }

    /// Random accounts. The first pays all the rest.
    fn legs(&self, bank: &Bank) -> Vec<Leg> {
        let used = self.hot.unwrap_or(self.accounts);
        let below = |n: usize| usize::try_from(bank.random() % n.max(1) as u64).unwrap_or(0);
        let mut chosen: Vec<usize> = Vec::with_capacity(self.legs);
        while chosen.len() < self.legs {
            let next = below(used) + 1;
            if !chosen.contains(&next) {
                chosen.push(next);
            }
        }
        let mut legs: Vec<Leg> = Vec::with_capacity(self.legs);
        let mut paid = 0;
        for number in &chosen[1..] {
            let amount = i64::try_from(below(100)).unwrap_or(0) + 1;
            paid += amount;
            legs.push(Leg::new(Self::account(*number), amount));
        }
        legs.push(Leg::new(Self::account(chosen[0]), -paid));
        legs
    }

    async fn settle(&self, bank: &Bank, tracks: &Mutex<Tracks>, until: Instant) -> LoadReport {
        let mut report = LoadReport::default();
        let unknown = {
            let tracks = tracks.lock();
            report.committed = tracks.committed;
            report.most_attempts = tracks.most_attempts;
            report.errors = tracks.errors.clone();
            report.last_error = tracks.last_error.clone();
            report.latency_ms = tracks.latency.millis(&QUANTILES);
            tracks.unknown.clone()
        };
        for tid in unknown {
            match tokio::time::timeout_at(until, outcome(bank, tid)).await {
                Ok(Ok(TransactionOutcome::Committed { .. })) => {
                    report.settled_committed += 1;
                    report.committed += 1;
                }
                Ok(Ok(TransactionOutcome::Aborted)) => report.settled_aborted += 1,
                Ok(Ok(_) | Err(_)) | Err(_) => report.unsettled.push(tid),
            }
        }
        report
    }
}

/// The outcome of a transaction, with retries of transient errors.
async fn outcome(bank: &Bank, tid: AttemptId) -> Result<TransactionOutcome> {
    loop {
        match bank.outcome(tid).await {
            Err(BankError::Engine(error)) if error.kind().is_transient_or_unknown() => {
                tokio::time::sleep(PAUSE).await;
            }
            known => return known,
        }
    }
}

fn kind_of(error: &BankError) -> String {
    match error {
        BankError::Engine(error) => format!("{:?}", error.kind()).to_lowercase(),
        BankError::InsufficientFunds { .. } => "insufficient funds".to_owned(),
        BankError::UnknownAccount(_) => "unknown account".to_owned(),
        other => other.to_string(),
    }
}
