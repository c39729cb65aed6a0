//! A server with a small heap under too many clients.
//!
//! The server cannot serve all clients.
//!
//! The load has a few clients before the overload and after it. In the meantime the server may
//! refuse, pause or die. The process restarts a dead server at any time, also during the checks.

mod figures;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use txn_testkit::servers::{Running, ServerKind, up_private_with_heap};

use crate::fault::Fault;
use crate::load::{Load, Progress, Shape, Timing, goes_on};
use crate::memory::Memory;
use crate::report::{Report, progress};
use figures::Figures;

/// The workers before and after the overload. Each coordinator has this number, and so have the
/// lists.
const FEW: usize = 16;

/// The time of the few clients until their rate is measured. The second time is that of the
/// measurement.
const WARM_UP: Duration = Duration::from_secs(10);
const CALM: Duration = Duration::from_secs(20);

/// The time between two readings of the figures of the server.
const INTERVAL: Duration = Duration::from_secs(1);

/// The timers whose delays are measured.
const TICK: Duration = Duration::from_millis(100);

/// The maximum time until the server answers before a round.
const START: Duration = Duration::from_secs(180);

/// The number of failed starts until a server counts as lost. The starts are in a row.
const TRIES: u32 = 5;

/// The recovered rate, as a share of the rate before. The rate after the overload has to reach this
/// share.
const RECOVERED: f64 = 0.5;

/// The largest memory growth during the overload, in MiB. The memory is that of this process.
const MOST_MEMORY: u64 = 512;

/// The time that a transaction may take beyond its timeout.
const BEYOND: Duration = Duration::from_secs(15);

const TIMING: Timing = Timing {
    lease: Duration::from_secs(2),
    janitor_interval: Duration::from_secs(5),
    timeout: Duration::from_secs(10),
    request_timeout: Duration::from_secs(5),
};

/// The usual load: one coordinator, and 1,000 clients with the lists.
pub const USUAL: Shape =
    Shape { coordinators: 1, workers: 500, accounts: 2_000, note: 16 * 1_024, readers: 2, seed: 0 };

/// Runs the overload on a server, and reports.
///
/// The overload takes `span`. `heap` is the heap of the server, in MiB.
///
/// # Errors
/// If the load cannot run, or the server does not start again.
pub async fn run(
    kind: ServerKind,
    heap: u32,
    faults: &[Fault],
    span: Duration,
    shape: Shape,
) -> Result<Report, String> {
    if !faults.is_empty() {
        return Err("an overload is the only fault of this target".to_owned());
    }
    let clients = (shape.coordinators + 1) * shape.workers;
    eprintln!("seed {}, {clients} clients, a heap of {heap} MiB", shape.seed);
    let server = Server::start(kind, heap).await?;
    let name = txn_fixtures::unique("torture");
    let urls = vec![server.url.clone()];
    let mut load = Load::open(&name, shape, TIMING, |_| urls.clone(), urls.clone()).await?;
    load.permit(Some("max_concurrent_transactions"));
    let (began, bar) = (Instant::now(), progress(span + 2 * (WARM_UP + CALM)));
    let mut figures = Figures::new(&server.url)?;
    let mut course = Course { server: &server, load: load.progress(), bar: &bar, memory: 0 };
    let latest_timer = Arc::new(AtomicU64::new(0));
    // A task of its own waits for the processor like the tasks of the callers.
    let mut timers = JoinSet::new();
    timers.spawn(measure_timers(latest_timer.clone()));
    let rounds = async {
        let before = course.round(&mut load, FEW, WARM_UP, CALM, &mut figures).await?;
        let small = Memory::of(std::process::id())?.now;
        course.memory = 0;
        let workers = shape.workers;
        let during = course.round(&mut load, workers, Duration::ZERO, span, &mut figures).await?;
        let most = course.memory;
        let after = course.round(&mut load, FEW, WARM_UP, CALM, &mut figures).await?;
        Ok::<_, String>((before, small, during, most, after))
    };
    let (before, small, during, most, after) = tokio::select! {
        rounds = rounds => rounds?,
        lost = server.keep_alive() => return Err(lost),
    };
    timers.shutdown().await;
    let last = Memory::of(std::process::id())?.now;
    bar.finish_and_clear();
    let (longest, what) = load.longest();
    let mut violations = load.violations.clone();
    if most > small + MOST_MEMORY {
        violations.push(format!("this process grew from {small} MiB to {most} MiB"));
    }
    if after.rate < RECOVERED * before.rate {
        let (was, is) = (before.rate, after.rate);
        violations
            .push(format!("{is:.0} transactions per second after the overload, {was:.0} before"));
    }
    if longest > TIMING.timeout + BEYOND {
        let timeout = TIMING.timeout;
        violations.push(format!("{what} took {longest:?}, with a timeout of {timeout:?}"));
    }
    let mut lines = vec![
        ("seed".to_owned(), shape.seed),
        ("clients".to_owned(), clients as u64),
        ("heap of the server, MiB".to_owned(), u64::from(heap)),
    ];
    for (when, phase) in [("before", &before), ("during", &during), ("after", &after)] {
        lines.push((format!("acknowledged per second {when}"), phase.rate as u64));
    }
    let figure = |what: &str, count: u64| (what.to_owned(), count);
    lines.extend([
        figure("seconds of the checks after it", during.settling.as_secs()),
        figure(&format!("longest, ms: {what}"), millis(longest)),
        figure("latest timer of this process, ms", latest_timer.load(Ordering::Relaxed)),
        figure("MiB of this process before", small),
        figure("MiB of this process at most", most),
        figure("MiB of this process at the end", last),
        figure("deaths of the server", server.deaths.load(Ordering::Relaxed)),
    ]);
    lines.extend(load.refused());
    lines.extend(figures.lines());
    lines.extend(load.counted());
    let report = Report::new(began, 3, lines, &BTreeMap::new(), violations);
    load.close().await;
    server.end().await;
    Ok(report)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Notes the largest delay of a timer of this process. Callers return late by several such delays.
async fn measure_timers(latest: Arc<AtomicU64>) {
    loop {
        let asleep = Instant::now();
        tokio::time::sleep(TICK).await;
        latest.fetch_max(millis(asleep.elapsed() - TICK), Ordering::Relaxed);
    }
}

/// A server that is restarted when it dies.
#[derive(Debug)]
struct Server {
    running: Arc<Mutex<Running>>,
    url: String,
    deaths: AtomicU64,
}

impl Server {
    async fn start(kind: ServerKind, heap: u32) -> Result<Self, String> {
        let starting = tokio::task::spawn_blocking(move || up_private_with_heap(kind, heap));
        let running = starting.await.map_err(|error| error.to_string())?;
        let running = running.map_err(|error| error.to_string())?;
        let url = running.url().to_owned();
        Ok(Self { running: Arc::new(Mutex::new(running)), url, deaths: AtomicU64::new(0) })
    }

    fn is_alive(&self) -> bool {
        self.running.lock().nodes()[0].is_alive()
    }

    /// Restarts the server whenever it dies. Returns only if the server does not start again.
    async fn keep_alive(&self) -> String {
        loop {
            if let Err(lost) = self.revive().await {
                return lost;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Restarts a dead server. The server may die again during its start.
    async fn revive(&self) -> Result<(), String> {
        let mut failed = String::new();
        for _ in 0..TRIES {
            if self.is_alive() {
                return Ok(());
            }
            self.deaths.fetch_add(1, Ordering::Relaxed);
            let running = self.running.clone();
            let starting = tokio::task::spawn_blocking(move || running.lock().restart_node(0));
            match starting.await.map_err(|error| error.to_string())? {
                Ok(()) => return Ok(()),
                Err(error) => failed = error.to_string(),
            }
        }
        Err(format!("the server does not start again: {failed}"))
    }

    async fn end(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self.running)).await;
    }
}

/// The results of one phase.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Acknowledged transactions per second.
    rate: f64,
    /// The time of the checks after the load.
    settling: Duration,
}

/// The server, and a view of the load.
#[derive(Debug)]
struct Course<'a> {
    server: &'a Server,
    load: Progress,
    bar: &'a ProgressBar,
    /// The largest memory of this process, in MiB.
    memory: u64,
}

impl Course<'_> {
    /// Runs the load with so many workers, and checks it.
    async fn round(
        &mut self,
        load: &mut Load,
        workers: usize,
        warm_up: Duration,
        span: Duration,
        figures: &mut Figures,
    ) -> Result<Phase, String> {
        // The server may have died in the checks of the round before.
        let answers = tokio::time::timeout(START, figures.until_answered()).await;
        answers.map_err(|_| format!("the server does not answer within {START:?}"))?;
        let known = load.violations.len();
        let mut result = Ok((0.0, Instant::now()));
        load.round(workers, async {
            result = self.watch(warm_up, span, figures).await;
        })
        .await;
        let (rate, ended) = result?;
        for violation in &load.violations[known..] {
            self.bar.suspend(|| eprintln!("VIOLATION with {workers} workers: {violation}"));
        }
        Ok(Phase { rate, settling: ended.elapsed() })
    }

    /// Watches the load, and returns its rate after the warm-up.
    async fn watch(
        &mut self,
        warm_up: Duration,
        span: Duration,
        figures: &mut Figures,
    ) -> Result<(f64, Instant), String> {
        if !warm_up.is_zero() {
            // A few clients can be served, once a server that died has started again.
            goes_on(&self.load.ledger, 1).await?;
        }
        let began = Instant::now();
        let (mut first, mut since) = (self.load.acknowledged(), began);
        while began.elapsed() < warm_up + span {
            if began.elapsed() < warm_up {
                (first, since) = (self.load.acknowledged(), Instant::now());
            }
            figures.read().await;
            self.memory = self.memory.max(Memory::of(std::process::id())?.now);
            self.bar.inc(1);
            self.bar.set_message(format!(
                "{} acknowledged, {} MiB, {} deaths of the server",
                self.load.acknowledged(),
                self.memory,
                self.server.deaths.load(Ordering::Relaxed)
            ));
            tokio::time::sleep(INTERVAL).await;
        }
        let acknowledged = self.load.acknowledged() - first;
        Ok((acknowledged as f64 / since.elapsed().as_secs_f64(), Instant::now()))
    }
}
