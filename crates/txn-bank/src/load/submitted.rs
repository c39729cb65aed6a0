//! A load of submitted transfers, which processors execute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use txn_requests::{Processor, RequestError, Requests, RequestsConfig, State};

use super::latency::Latency;
use super::{FINISH, Load, PAUSE, Progress, WRAP_UP, kind_of};
use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::transfers::requests::APPLICATION;

/// The reported quantiles.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// The number of retries of a submission without an answer.
const TRIES: usize = 5;

/// The longest pause between two polls for a finished request.
const LONGEST_LOOK: Duration = Duration::from_millis(50);

/// The results of a load of submitted transfers.
///
/// All times start at the submitting call.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SubmittedReport {
    /// The number of accounts that this load opened.
    pub opened: usize,
    /// The seconds from the first submission to the last transfer.
    pub seconds: f64,
    /// The number of accepted transfers: durable, and decided later.
    pub accepted: u64,
    /// The number of transfers observed as committed.
    pub committed: u64,
    /// The number of transfers observed as finished: plain reads see them.
    pub finished: u64,
    /// The number of transfers rolled back for insufficient funds.
    pub rolled_back: u64,
    /// The number of quarantined transfers.
    pub quarantined: u64,
    /// The number of undecided transfers. Processors execute them later.
    pub undecided: u64,
    /// The number of transfers per second in each of these states.
    pub per_second: BTreeMap<&'static str, f64>,
    /// The milliseconds until the acceptance, by quantile.
    pub accepted_ms: BTreeMap<&'static str, f64>,
    /// The milliseconds until the commit, by quantile.
    pub committed_ms: BTreeMap<&'static str, f64>,
    /// The milliseconds until the observed finish, by quantile.
    ///
    /// The load polls every few milliseconds.
    pub finished_ms: BTreeMap<&'static str, f64>,
    /// The number of failures, by kind of error.
    pub errors: BTreeMap<String, u64>,
    /// The text of the last error.
    pub last_error: Option<String>,
    /// Whether all started work was done at the end.
    pub drained: bool,
    /// Whether the load was stopped early.
    pub interrupted: bool,
}

struct Tracks {
    report: SubmittedReport,
    accepted: Latency,
    committed: Latency,
    finished: Latency,
}

impl Tracks {
    fn new() -> Result<Self> {
        Ok(Self {
            report: SubmittedReport::default(),
            accepted: Latency::new()?,
            committed: Latency::new()?,
            finished: Latency::new()?,
        })
    }
}

/// The state that the workers of a load share.
struct Desk {
    bank: Bank,
    requests: Requests,
    load: Load,
    tracks: Mutex<Tracks>,
    /// The time of the last start of a transfer.
    end: watch::Receiver<Instant>,
}

impl Load {
    /// As [`Load::run`], with submitted transfers.
    ///
    /// Each worker submits a transfer, waits until it is finished, and submits the next.
    /// `processors` of them run in this process; with 0, other processes must run some. Ends with
    /// [`Bank::shutdown`].
    ///
    /// # Errors
    /// Errors of the engine while accounts are opened; as [`Bank::requests`]. Failed transfers are
    /// only counted.
    pub async fn run_submitted(
        &self,
        bank: &Bank,
        processors: usize,
        stop: impl Future<Output = ()> + Send,
        progress: &Progress,
    ) -> Result<SubmittedReport> {
        let mut stop = std::pin::pin!(stop);
        let opened = tokio::select! {
            opened = self.open(bank) => opened?,
            () = &mut stop => {
                let drained = bank.shutdown(WRAP_UP).await;
                return Ok(SubmittedReport { drained, interrupted: true, ..Default::default() });
            }
        };
        let config = RequestsConfig::default().with_concurrency(self.workers.max(1));
        let requests = bank.requests(config).await?;
        let running: Vec<Processor> =
            (0..processors).map(|_| requests.start(Some(APPLICATION))).collect();
        let tracks = Tracks::new()?;
        let began = Instant::now();
        let (set_end, end) = watch::channel(began + self.duration);
        let (load, tracks) = (self.clone(), Mutex::new(tracks));
        let desk = Arc::new(Desk { bank: bank.clone(), requests, load, tracks, end });
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            let desk = desk.clone();
            workers.spawn(async move { desk.work().await });
        }
        let mut interrupted = false;
        let mut tick = tokio::time::interval(Duration::from_millis(250));
        loop {
            let last = *set_end.borrow() + FINISH + WRAP_UP;
            tokio::select! {
                joined = workers.join_next() => match joined {
                    None => break,
                    Some(Err(error)) if !error.is_cancelled() => desk.failed(format!("task: {error}")),
                    Some(_) => {}
                },
                () = &mut stop, if !interrupted => {
                    interrupted = true;
                    set_end.send_replace(Instant::now());
                }
                // Accepted transfers continue without the workers.
                () = tokio::time::sleep_until(last) => workers.abort_all(),
                _ = tick.tick() => {
                    let (committed, failed) = desk.counts();
                    progress(began.elapsed(), committed, failed);
                }
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let drained = desk.wrap_up(running).await;
        let mut report = desk.report(seconds);
        (report.opened, report.drained, report.interrupted) = (opened, drained, interrupted);
        Ok(report)
    }
}

impl Desk {
    /// Ends the processors, the requests and the bank. Returns whether all work was done.
    async fn wrap_up(&self, running: Vec<Processor>) -> bool {
        let until = Instant::now() + WRAP_UP;
        let left = || until.saturating_duration_since(Instant::now());
        let mut drained = true;
        for processor in running {
            drained &= processor.stop(left()).await;
        }
        drained &= self.requests.shutdown(left()).await;
        drained & self.bank.shutdown(left()).await
    }

    async fn work(&self) {
        while Instant::now() < *self.end.borrow() {
            let Err(error) = self.one().await else { continue };
            self.failed(kind_of(&error));
            self.tracks.lock().report.last_error = Some(error.to_string());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The numbers of committed and of failed transfers so far.
    fn counts(&self) -> (u64, u64) {
        let tracks = self.tracks.lock();
        (tracks.report.committed, tracks.report.errors.values().sum())
    }

    fn failed(&self, kind: String) {
        *self.tracks.lock().report.errors.entry(kind).or_default() += 1;
    }

    /// Submits one transfer, and waits for its end.
    async fn one(&self) -> Result<()> {
        let key = self.bank.new_key();
        let legs = self.load.legs(&self.bank);
        let began = Instant::now();
        let mut tries = 0;
        // A repeated submission with the same key is the same transfer.
        while let Err(error) = self.bank.submit(&self.requests, &key, &legs).await {
            tries += 1;
            match &error {
                BankError::Engine(engine)
                    if engine.kind().is_transient_or_unknown() && tries < TRIES => {}
                _ => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
        {
            let mut tracks = self.tracks.lock();
            tracks.report.accepted += 1;
            tracks.accepted.record(began.elapsed());
        }
        let last = *self.end.borrow() + FINISH + WRAP_UP;
        let left = || last.saturating_duration_since(Instant::now());
        let mut state = match self.requests.wait(&key, left()).await {
            Ok(status) => status.state,
            // Counted as undecided.
            Err(RequestError::Timeout { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        {
            let mut tracks = self.tracks.lock();
            match state {
                State::RolledBack => tracks.report.rolled_back += 1,
                State::Quarantined => tracks.report.quarantined += 1,
                _ => {
                    tracks.report.committed += 1;
                    tracks.committed.record(began.elapsed());
                }
            }
        }
        let mut pause = Duration::from_millis(1);
        while state == State::Committed && !left().is_zero() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
            state = self.requests.status(&key).await?.state;
        }
        if state == State::Finished {
            let mut tracks = self.tracks.lock();
            tracks.report.finished += 1;
            tracks.finished.record(began.elapsed());
        }
        Ok(())
    }

    fn report(&self, seconds: f64) -> SubmittedReport {
        let tracks = self.tracks.lock();
        let mut report = tracks.report.clone();
        let decided = report.committed + report.rolled_back + report.quarantined;
        report.undecided = report.accepted.saturating_sub(decided);
        report.seconds = seconds;
        report.accepted_ms = tracks.accepted.millis(&QUANTILES);
        report.committed_ms = tracks.committed.millis(&QUANTILES);
        report.finished_ms = tracks.finished.millis(&QUANTILES);
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let counts = [
            ("accepted", report.accepted),
            ("committed", report.committed),
            ("finished", report.finished),
        ];
        report.per_second = counts.into_iter().map(|(name, count)| (name, rate(count))).collect();
        report
    }
}
