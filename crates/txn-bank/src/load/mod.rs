//! A load: many transfers at once for a while, and what they took.

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
use crate::transfer::{Status, TransferOptions};

use latency::Latency;
pub use submitted::SubmittedReport;

/// What each account of a load starts with.
const DEPOSIT: i64 = 1_000_000;

/// Accounts that one transaction opens.
const OPENED_AT_ONCE: usize = 50;

/// How long to wait after a transaction that failed, so that a store that is down is not asked in a loop.
const PAUSE: Duration = Duration::from_millis(100);

/// How long transfers that run when the time is over may still take.
const FINISH: Duration = Duration::from_secs(1);

/// How long, after the last transfer, unknown outcomes are asked for and what is committed is applied.
const WRAP_UP: Duration = Duration::from_secs(5);

/// The quantiles that are reported.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// The shape of a load.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load {
    /// Accounts `load-0001` and on, opened on first use.
    pub accounts: usize,
    /// Legs of each transfer.
    pub legs: usize,
    /// Transfers under way at once.
    pub workers: usize,
    /// For how long.
    pub duration: Duration,
    /// Only the first so many accounts are used, if given.
    pub hot: Option<usize>,
}

impl Load {
    /// A load.
    ///
    /// # Errors
    /// [`BankError::InvalidLoad`] if it cannot run, in words.
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

/// Counts events; to be given to the domain's configuration.
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
            Event::Replayed { .. } | Event::AbortedByRecovery { .. } => &self.recovered,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Is told how far a load is, a few times a second.
pub type Progress = dyn Fn(Duration, u64, u64) + Send + Sync;

/// What a load took.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// Accounts that this load opened.
    pub opened: usize,
    /// Seconds from the first transfer to the last.
    pub seconds: f64,
    /// Transfers that are committed, those settled at the end included.
    pub committed: u64,
    /// Committed transfers per second.
    pub per_second: f64,
    /// Milliseconds of committed transfers, all attempts included: least, median, and so on.
    pub latency_ms: BTreeMap<&'static str, f64>,
    /// Times a transaction met another's document: it waited for an older one or wounded a younger one.
    pub conflicts: u64,
    /// Younger transactions that older ones aborted.
    pub wounds: u64,
    /// Attempts that were started over.
    pub retries: u64,
    /// The largest number of attempts of one committed transfer.
    pub most_attempts: u32,
    /// Transactions of dead processes that were met and recovered, or helped to their end.
    pub recovered: u64,
    /// Transfers that failed, by kind of error.
    pub errors: BTreeMap<String, u64>,
    /// The words of the last of them.
    pub last_error: Option<String>,
    /// Transfers whose outcome was unknown and is known now: they are committed.
    pub settled_committed: u64,
    /// Transfers whose outcome was unknown and is known now: they are not committed.
    pub settled_aborted: u64,
    /// Transfers whose outcome is still unknown.
    pub unsettled: Vec<AttemptId>,
    /// Whether everything was applied at the end.
    pub drained: bool,
    /// Whether it was ended early.
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

impl Load {
    fn account(number: usize) -> String {
        format!("load-{number:04}")
    }

    /// Runs on a bank whose domain tells `tally` its events, until the time is over or `stop` returns. No transfer
    /// begins after that; those that run have a second. Then unknown outcomes are asked for, and it ends with
    /// [`Bank::shutdown`], both together within five seconds.
    ///
    /// # Errors
    /// The engine's, while accounts are opened. Failing transfers are counted, not returned.
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
        let tracks = Tracks {
            latency: Latency::new()?,
            committed: 0,
            failed: 0,
            most_attempts: 0,
            errors: BTreeMap::new(),
            last_error: None,
            unknown: Vec::new(),
        };
        let tracks = Arc::new(Mutex::new(tracks));
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
                    // Dropped, an uncommitted transfer rolls back; a commit under way goes on.
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
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        report.opened = opened;
        report.seconds = seconds;
        report.per_second = if seconds > 0.0 { report.committed as f64 / seconds } else { 0.0 };
        report.wounds = count(&tally.wounds);
        report.conflicts = count(&tally.waits) + report.wounds;
        report.retries = count(&tally.retries);
        report.recovered = count(&tally.recovered);
        report.interrupted = interrupted;
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
                    Err(BankError::Engine(error)) if error.kind().passes() && tries < 5 => {
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
            let deadline = Options::default().with_deadline(Some(end + FINISH - began));
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

    /// Random accounts; the first pays all others.
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

/// What became of a transaction, asked until it is known or asking does not help.
async fn outcome(bank: &Bank, tid: AttemptId) -> Result<TransactionOutcome> {
    loop {
        match bank.outcome(tid).await {
            Err(BankError::Engine(error)) if error.kind().passes() => {
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
