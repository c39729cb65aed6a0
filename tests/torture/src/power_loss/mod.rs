//! Nodes that lose their power, with everything that was not synced.

mod machine;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fastrand::Rng;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use txn_fixtures::ledger::Ledger;
use txn_lossy_disk::{Loss, Metadata, Power};
use txn_testkit::servers::ServerKind;

use crate::fault::Fault;
use crate::load::{Load, Shape, Timing, goes_on};
use crate::report::{Report, missed, progress};
pub use machine::Machine;
use machine::cut_at_change;
use schedule::{Round, Schedule};

/// The number of transfers after a power loss, before the checks.
const TRANSFERS: u64 = 10;

/// The guarantee of a disk for names in folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Guarantee {
    /// Any sync makes all earlier changes of folders durable. Examples are ext4, XFS and Btrfs.
    Journaled,
    /// Only the sync of a folder makes its changes durable. POSIX has this rule.
    PerFolder,
}

impl From<Guarantee> for Metadata {
    fn from(guarantee: Guarantee) -> Self {
        match guarantee {
            Guarantee::Journaled => Self::Journaled,
            Guarantee::PerFolder => Self::PerFolder,
        }
    }
}

/// Runs the load for `span` on nodes of this kind, and reports.
///
/// # Errors
/// If the load cannot run, a fault cannot happen, the process cannot mount disks, or a node does
/// not start after a power loss.
pub async fn run(
    kind: ServerKind,
    disk: Guarantee,
    faults: &[Fault],
    seed: u64,
    span: Duration,
    shape: Shape,
) -> Result<Report, String> {
    let mut schedule = Schedule::new(seed, faults)?;
    eprintln!("seed {seed}");
    let stage = Stage::start(kind, disk).await?;
    let mut load = stage.open(shape).await?;
    let (began, bar) = (Instant::now(), progress(span));
    let mut figures = Figures::default();
    let mut failed = Ok(());
    while let (true, Some(round)) = (began.elapsed() < span, schedule.next()) {
        let ledger = load.ledger();
        let course = async { failed = stage.play(&round, &ledger, &mut figures, &bar).await };
        let known = load.violations.len();
        load.round(shape.workers, course).await;
        if let Err(why) = failed {
            return Err(format!("seed {seed}, round {}: {round}: {why}", figures.rounds));
        }
        load.show_round(figures.rounds, known, began, &bar);
    }
    bar.finish_and_clear();
    let mut lines = vec![("seed".to_owned(), seed)];
    lines.extend(figures.lines(stage.power.changes()));
    lines.extend(load.counted());
    let mut violations = load.violations.clone();
    violations.extend(missed(span, schedule.planned(), &figures.faults));
    let damage = figures.damage();
    violations.extend(missed(span, damage.keys().cloned(), &damage));
    let report = Report::new(began, figures.rounds, lines, &figures.faults, violations);
    load.close().await;
    stage.end().await;
    Ok(report)
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Figures {
    rounds: u64,
    faults: BTreeMap<String, u64>,
    losses: u64,
    loss: Loss,
}

impl Figures {
    fn add(&mut self, loss: Loss) {
        self.losses += 1;
        self.loss += loss;
    }

    /// The ends of pages that were not synced, each of which a long run needs.
    fn damage(&self) -> BTreeMap<String, u64> {
        let Loss { lost, kept, torn, .. } = self.loss;
        let damage = [("loss of a page", lost), ("survival of a page", kept), ("torn page", torn)];
        damage.into_iter().map(|(what, count)| (what.to_owned(), count)).collect()
    }

    fn lines(&self, changes: u64) -> Vec<(String, u64)> {
        let Loss { lost, kept, torn, cut, undone, done } = self.loss;
        let lines = [
            ("power losses", self.losses),
            ("writes, syncs and changes of folders", changes),
            ("unsynced pages lost", lost),
            ("unsynced pages kept", kept),
            ("unsynced pages torn", torn),
            ("files with another size", cut),
            ("unsynced changes of folders undone", undone),
            ("unsynced changes of folders kept", done),
        ];
        lines.into_iter().map(|(what, count)| (what.to_owned(), count)).collect()
    }
}

/// The nodes, with their power.
#[derive(Debug)]
struct Stage {
    machine: Arc<Mutex<Machine>>,
    urls: Vec<String>,
    power: Power,
}

impl Stage {
    async fn start(kind: ServerKind, disk: Guarantee) -> Result<Self, String> {
        let starting = tokio::task::spawn_blocking(move || Machine::start(kind, disk.into()));
        let machine = starting.await.map_err(|error| error.to_string())??;
        let (urls, power) = (machine.urls(), machine.power());
        Ok(Self { machine: Arc::new(Mutex::new(machine)), urls, power })
    }

    async fn open(&self, shape: Shape) -> Result<Load, String> {
        let timing = Timing { lease: Duration::from_secs(1), ..Timing::ONE_SERVER };
        let name = txn_fixtures::unique("torture");
        Load::open(&name, shape, timing, |_| self.urls.clone(), self.urls.clone()).await
    }

    /// Plays one round: load, power loss, start, load.
    async fn play(
        &self,
        round: &Round,
        ledger: &Ledger,
        figures: &mut Figures,
        bar: &ProgressBar,
    ) -> Result<(), String> {
        figures.rounds += 1;
        *figures.faults.entry(round.fault.to_string()).or_default() += 1;
        let mut random = Rng::with_seed(round.seed);
        tokio::time::sleep(round.load).await;
        if let Some(changes) = round.changes {
            let power = self.power.clone();
            let waiting = tokio::task::spawn_blocking(move || cut_at_change(&power, changes));
            waiting.await.map_err(|error| error.to_string())?;
        }
        let fork = random.fork();
        let first = self.change(move |machine| machine.fail(&mut { fork })).await?;
        figures.add(first);
        let mut second = None;
        if let Some(again) = round.again {
            let fork = random.fork();
            let loss =
                self.change(move |machine| machine.restart_and_fail(again, &mut { fork })).await?;
            figures.add(loss);
            second = Some(loss);
        }
        let number = figures.rounds;
        bar.suspend(|| {
            eprintln!("round {number}: {round}");
            for loss in [Some(first), second].into_iter().flatten() {
                eprintln!("  {loss}");
            }
        });
        self.change(Machine::restart).await?;
        goes_on(ledger, TRANSFERS).await
    }

    async fn change<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Machine) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let machine = self.machine.clone();
        let done = tokio::task::spawn_blocking(move || what(&mut machine.lock())).await;
        done.map_err(|error| error.to_string())?
    }

    async fn end(self) {
        // An error is a panic of the destructor, which was reported.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}
