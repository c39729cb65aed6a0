//! One simulated run.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select, try_join_all};
use txn_core::{Config, Domain};

use super::{BoxError, Report, Simulation, Worker};
use crate::FaultStore;
use crate::machine::{
    ClockOf, EntropyOf, Log, Process, Recording, StoreOf, draw_faults, in_virtual_time,
};
use crate::server::{Manners, REPLICATION, Server};

/// The shortest and the longest time with faults, in milliseconds.
const TROUBLE: [u64; 2] = [5_000, 40_000];
/// The time in which all work must end after the faults.
const PEACE: Duration = Duration::from_secs(300);
/// The pause before a process starts again, in milliseconds.
const RESTART: [u64; 2] = [10, 3_000];
/// The longest pause of a process, in milliseconds. Longer than a lease.
const LONGEST_PAUSE: u64 = 20_000;
/// The maximum number of steps of a process before its death.
const LATEST_DEATH: f64 = 400.0;
/// The maximum difference of a clock from true time, in milliseconds.
const CLOCK_ERROR: i64 = 5_000;
/// Passes of a janitor until nothing is left over.
const PASSES: usize = 60;

/// The closures of a test.
pub(super) struct Closures<S, W, C> {
    pub(super) setup: S,
    pub(super) workload: W,
    pub(super) check: C,
}

/// The result of a run.
pub(super) struct Ended {
    pub(super) result: Result<(), String>,
    pub(super) report: Report,
    pub(super) log: Vec<String>,
}

/// The end of one life of a process.
enum End {
    Done(Domain),
    Died,
    Failed(String),
    Panicked(String),
}

/// The state of a run. One thread runs all processes.
pub(super) struct Run<'a> {
    plan: &'a Simulation,
    seed: u64,
    server: Arc<Server>,
    faults: Arc<FaultStore>,
    manners: Manners,
    log: Arc<Log>,
    dice: RefCell<fastrand::Rng>,
    /// Whether faults happen.
    is_troubled: Cell<bool>,
    processes: RefCell<Vec<Arc<Process>>>,
    report: Cell<Report>,
}

impl<'a> Run<'a> {
    /// Runs one seed in a runtime of its own.
    pub(super) fn carry_out<M, S, W, C>(
        plan: &'a Simulation,
        seed: u64,
        recording: Recording,
        closures: &Closures<S, W, C>,
    ) -> Ended
    where
        S: AsyncFn(&Domain) -> Result<M, BoxError>,
        W: AsyncFn(&Worker, &M) -> Result<(), BoxError>,
        C: AsyncFn(&Domain, &M) -> Result<(), BoxError>,
    {
        in_virtual_time(async {
            let run = Run::new(plan, seed, recording);
            let result = Box::pin(run.all(closures)).await;
            let mut report = run.report.get();
            report.runs = 1;
            let misdeeds: u64 = run.server.misdeeds().named().iter().map(|(_, times)| times).sum();
            report.faults = run.faults.injected().total() + misdeeds;
            Ended { result, report, log: run.log.take() }
        })
    }

    fn new(plan: &'a Simulation, seed: u64, recording: Recording) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let (faults, manners) = match plan.faults {
            None => draw_all_faults(seed, &mut dice),
            Some(mut faults) => {
                faults.seed = seed;
                (faults, Manners::default())
            }
        };
        let server = Server::new(seed, Manners::default());
        let faults = Arc::new(FaultStore::new(server.clone(), faults));
        faults.set_enabled(false);
        Self {
            plan,
            seed,
            server,
            faults,
            manners,
            log: Arc::new(Log::new(recording)),
            dice: RefCell::new(dice),
            is_troubled: Cell::new(false),
            processes: RefCell::default(),
            report: Cell::default(),
        }
    }

    async fn all<M, S, W, C>(&self, closures: &Closures<S, W, C>) -> Result<(), String>
    where
        S: AsyncFn(&Domain) -> Result<M, BoxError>,
        W: AsyncFn(&Worker, &M) -> Result<(), BoxError>,
        C: AsyncFn(&Domain, &M) -> Result<(), BoxError>,
    {
        let founder = self.domain(&self.process("setup"), true).await?;
        let model = caught((closures.setup)(&founder), "setup").await?;
        founder.shutdown(PEACE).await;
        self.begin_faults();
        let domains = self.lives(&model, &closures.workload).await?;
        self.end_faults();
        self.faults.settle().await;
        // Requests of dead processes are still carried out.
        tokio::time::sleep(2 * REPLICATION).await;
        for domain in domains {
            // Without a shutdown, the process ends as if it died. A process that died after its
            // workload never answers.
            if self.dice.borrow_mut().bool() {
                drop(tokio::time::timeout(2 * PEACE, domain.shutdown(PEACE)).await);
            }
        }
        self.processes.borrow().iter().for_each(|process| process.kill_after(0));
        let last = self.domain(&self.process("check"), false).await?;
        recover(&last).await?;
        caught((closures.check)(&last, &model), "check").await?;
        last.shutdown(PEACE).await;
        Ok(())
    }

    /// Runs all processes until their workloads have ended. Returns their domains.
    async fn lives<M, W>(&self, model: &M, workload: &W) -> Result<Vec<Domain>, String>
    where
        W: AsyncFn(&Worker, &M) -> Result<(), BoxError>,
    {
        let (running, trouble) = {
            let mut dice = self.dice.borrow_mut();
            let trouble = Duration::from_millis(dice.u64(TROUBLE[0]..TROUBLE[1]));
            let forks: Vec<_> = (0..self.plan.processes).map(|_| dice.fork()).collect();
            (forks, trouble)
        };
        let running = running.into_iter().enumerate();
        let all = try_join_all(running.map(|(number, dice)| {
            Box::pin(self.life_after_life(number, RefCell::new(dice), model, workload))
        }));
        let end = async {
            tokio::time::sleep(trouble).await;
            self.end_faults();
            tokio::time::sleep(PEACE).await;
        };
        match select(pin!(all), pin!(end)).await {
            Either::Left((domains, _)) => domains,
            Either::Right(_) => {
                Err(format!("a workload did not end within {} s without faults", PEACE.as_secs()))
            }
        }
    }

    /// Starts a process again and again, until its workload succeeds.
    async fn life_after_life<M, W>(
        &self,
        number: usize,
        dice: RefCell<fastrand::Rng>,
        model: &M,
        workload: &W,
    ) -> Result<Domain, String>
    where
        W: AsyncFn(&Worker, &M) -> Result<(), BoxError>,
    {
        for restarts in 0.. {
            let had_faults = self.is_troubled.get();
            let process = self.process(&format!("process {number}.{restarts}"));
            if had_faults {
                self.plan_end(&process, &mut dice.borrow_mut());
            }
            let life = async {
                let domain = self.domain(&process, false).await?;
                let dice = RefCell::new(dice.borrow_mut().fork());
                let worker = Worker { domain, number, restarts, dice };
                workload(&worker, model).await.map_err(|error| error.to_string())?;
                Ok(worker.domain)
            };
            match live(&process, life).await {
                End::Done(domain) => return Ok(domain),
                End::Died => self.count(|report| report.deaths += 1),
                End::Panicked(why) => return Err(format!("the workload panicked: {why}")),
                End::Failed(why) if had_faults => {
                    process.log(|| format!("fails: {why}"));
                    self.count(|report| report.failed += 1);
                }
                End::Failed(why) => return Err(format!("the workload failed, no faults: {why}")),
            }
            // The tasks of the domain continue otherwise.
            process.kill_after(0);
            let pause = dice.borrow_mut().u64(RESTART[0]..RESTART[1]);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        Err("too many restarts".to_owned())
    }

    /// Draws whether and when a process dies or pauses.
    fn plan_end(&self, process: &Process, dice: &mut fastrand::Rng) {
        let drawn = dice.f64();
        // Early steps are as likely as late ones, because workloads differ in length.
        let steps = LATEST_DEATH.powf(dice.f64()) as u64;
        let pause = Duration::from_millis(dice.u64(100..LONGEST_PAUSE));
        if drawn < self.plan.deaths {
            process.kill_after(steps);
        } else if drawn < self.plan.deaths * 4.0 / 3.0 {
            process.pause_after(steps, pause);
        }
    }

    fn count(&self, add: impl FnOnce(&mut Report)) {
        let mut report = self.report.get();
        add(&mut report);
        self.report.set(report);
    }

    fn begin_faults(&self) {
        self.server.set_manners(self.manners);
        self.faults.set_enabled(true);
        self.is_troubled.set(true);
    }

    fn end_faults(&self) {
        self.is_troubled.set(false);
        self.faults.set_enabled(false);
        self.server.set_manners(Manners::default());
        self.processes.borrow().iter().for_each(|process| process.leave_alone());
    }

    /// Creates a process with clocks of its own.
    fn process(&self, name: &str) -> Arc<Process> {
        let mut processes = self.processes.borrow_mut();
        let number = processes.len() as u64 + 1;
        let (speed, off) = {
            let mut dice = self.dice.borrow_mut();
            (0.99 + 0.02 * dice.f64(), dice.i64(-CLOCK_ERROR..=CLOCK_ERROR))
        };
        let seed = self.seed ^ (number << 32);
        let (store, log) = (self.faults.clone(), self.log.clone());
        let process = Process::new(name.to_owned(), store, log, seed, speed, off);
        process.log(|| "starts".to_owned());
        processes.push(process.clone());
        process
    }

    async fn domain(&self, process: &Arc<Process>, create: bool) -> Result<Domain, String> {
        let config: Config = self.plan.config.clone();
        let config = config
            .with_clock(Arc::new(ClockOf(process.clone())))
            .with_entropy(Arc::new(EntropyOf(process.clone())))
            .with_process_name(process.name().to_owned());
        let (store, name) = (Arc::new(StoreOf(process.clone())), &*self.plan.application);
        let opened = match create {
            true => Domain::open_or_create(store, name, config).await,
            false => Domain::open(store, name, config).await,
        };
        opened.map_err(|error| format!("no domain: {error}"))
    }
}

/// Draws the faults of a seed, including writes that are refused and applied nevertheless.
fn draw_all_faults(seed: u64, dice: &mut fastrand::Rng) -> (crate::FaultPlan, Manners) {
    let (faults, manners) = draw_faults(seed, dice);
    let mut often = |odds: f64, most: f64| if dice.f64() < odds { most * dice.f64() } else { 0.0 };
    let (shortest, longest) = (Duration::from_millis(300), Duration::from_secs(10));
    let faults = faults
        .with_applied_rejected(often(0.5, 0.06))
        .with_lost_rejected(often(0.4, 0.06))
        .with_late_rejected(often(0.4, 0.06))
        .with_outage(often(0.4, 0.3), shortest, longest);
    (faults, manners)
}

/// Runs the workload of a process to its end, or until the process dies.
async fn live(process: &Process, life: impl Future<Output = Result<Domain, String>>) -> End {
    let life = AssertUnwindSafe(life).catch_unwind();
    match select(pin!(life), pin!(process.died())).await {
        Either::Left((Ok(Ok(domain)), _)) => End::Done(domain),
        Either::Left((Ok(Err(why)), _)) => End::Failed(why),
        Either::Left((Err(panic), _)) => End::Panicked(message_of(&*panic)),
        Either::Right(_) => {
            process.log(|| "dies".to_owned());
            End::Died
        }
    }
}

/// Runs a closure that must succeed.
async fn caught<T>(
    closure: impl Future<Output = Result<T, BoxError>>,
    name: &str,
) -> Result<T, String> {
    match AssertUnwindSafe(closure).catch_unwind().await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("the {name} failed: {error}")),
        Err(panic) => Err(format!("the {name} panicked: {}", message_of(&*panic))),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

/// Recovers the transactions of the processes that ended.
async fn recover(domain: &Domain) -> Result<(), String> {
    let mut left = String::new();
    for _ in 0..PASSES {
        match domain.admin().janitor_pass().await {
            Ok(report) if report.is_clean() => return Ok(()),
            Ok(report) => left = format!("{report:?}"),
            Err(error) => left = error.to_string(),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err(format!("transactions are left over: {left}"))
}
