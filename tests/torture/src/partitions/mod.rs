//! Three nodes and two clients, with cuts between them.
//!
//! Each client is one half of the coordinators, with an interface of its own. The witness of the
//! checks and the observer of elections have a third interface, which no cut concerns.

mod elections;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use txn_fixtures::clock::MovedClock;
use txn_fixtures::faults::Cluster;
use txn_fixtures::ledger::Ledger;
use txn_testkit::servers::{Loss, Network, ServerKind, check_namespaces};

use crate::cluster::open;
use crate::fault::Fault;
use crate::load::{Load, Shape};
use crate::report::{Report, missed, progress};
use elections::Elections;
use schedule::{
    CLIENTS, Clients, Direction, NetworkFault, ProcessFault, ProcessFaultKind, Round, Schedule,
};

/// The duration of the load around a round's faults. The load has this duration before the faults,
/// and again after them.
const CALM: Duration = Duration::from_secs(3);

/// Runs the load on three nodes of this kind, and reports.
///
/// The load runs for `span`.
///
/// # Errors
/// If the load cannot run, a fault cannot happen, or the process is not root.
pub async fn run(
    kind: ServerKind,
    faults: &[Fault],
    seed: u64,
    span: Duration,
    shape: Shape,
) -> Result<Report, String> {
    let mut schedule = Schedule::new(seed, faults)?;
    check_namespaces().map_err(|error| error.to_string())?;
    eprintln!("seed {seed}");
    let cluster = Cluster::start_kind(kind).await;
    let network = cluster.network();
    let clients = network.clients().len();
    let mut load = open(&cluster, shape, |number| network.client_urls(number % clients)).await?;
    let stage = Stage::new(&cluster, &load);
    let (began, bar) = (Instant::now(), progress(span));
    let mut figures = Figures::default();
    while let (true, Some(round)) = (began.elapsed() < span, schedule.next()) {
        let mut result = Ok(());
        let course = async { result = stage.play(&round, &mut figures, &bar).await };
        let known = load.violations.len();
        load.round(shape.workers, course).await;
        result?;
        load.show_round(figures.rounds, known, began, &bar);
    }
    bar.finish_and_clear();
    let mut lines = vec![("seed".to_owned(), seed)];
    lines.extend(figures.lines());
    lines.extend(load.counted());
    let mut violations = load.violations.clone();
    violations.extend(missed(span, schedule.planned(), &figures.faults));
    let report = Report::new(began, figures.rounds, lines, &figures.faults, violations);
    stage.elections.end().await;
    load.close().await;
    cluster.end().await;
    Ok(report)
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Figures {
    rounds: u64,
    faults: BTreeMap<String, u64>,
    elections: u64,
    rounds_with_election: u64,
    slowest_election: Duration,
    fault_time: Duration,
    transfers: u64,
    rounds_without_transfers: u64,
}

impl Figures {
    fn count(&mut self, round: &Round, elections: &[(Duration, usize)], transfers: u64) {
        self.rounds += 1;
        let second = round.process.filter(|_| round.network.is_some());
        let second = second.map(|second| second.kind.name());
        for fault in [Some(round.name), second].into_iter().flatten() {
            *self.faults.entry(fault.to_string()).or_default() += 1;
        }
        self.elections += elections.len() as u64;
        if let Some((after, _)) = elections.first() {
            self.rounds_with_election += 1;
            self.slowest_election = self.slowest_election.max(*after);
        }
        self.transfers += transfers;
        self.rounds_without_transfers += u64::from(transfers == 0);
    }

    fn lines(&self) -> Vec<(String, u64)> {
        let slowest = u64::try_from(self.slowest_election.as_millis()).unwrap_or(u64::MAX);
        let lines = [
            ("seconds with faults", self.fault_time.as_secs()),
            ("elections during faults", self.elections),
            ("rounds with an election", self.rounds_with_election),
            ("longest time until a new master, ms", slowest),
            ("transfers acknowledged during faults", self.transfers),
            ("faults without an acknowledged transfer", self.rounds_without_transfers),
        ];
        lines.into_iter().map(|(what, count)| (what.to_owned(), count)).collect()
    }
}

/// The cluster with its faults.
#[derive(Debug)]
struct Stage<'a> {
    cluster: &'a Cluster,
    network: Network,
    ledger: Ledger,
    /// The wall clock of each coordinator.
    clocks: Vec<Arc<MovedClock>>,
    elections: Elections,
}

impl<'a> Stage<'a> {
    fn new(cluster: &'a Cluster, load: &Load) -> Self {
        let elections = Elections::observe(cluster.clone());
        let (ledger, clocks) = (load.ledger(), load.clocks().to_vec());
        Self { cluster, network: cluster.network(), ledger, clocks, elections }
    }

    /// Plays one round, from calm to calm.
    async fn play(
        &self,
        round: &Round,
        figures: &mut Figures,
        bar: &ProgressBar,
    ) -> Result<(), String> {
        tokio::time::sleep(CALM).await;
        self.cluster.is_green().await;
        let primary = self.cluster.holder_of_primary(self.ledger.collection()).await;
        let master = self.cluster.master().await;
        let before = self.ledger.counts().acknowledged;
        let begin = Instant::now();
        let caused = self.cause(round, master, primary).await;
        let elections = self.elections.after(begin);
        let transfers = self.ledger.counts().acknowledged - before;
        figures.fault_time += begin.elapsed();
        let healed = self.heal(round, master, primary).await;
        let number = figures.rounds + 1;
        bar.suspend(|| {
            eprintln!(
                "round {number}: {round}; master node-{}, primary node-{}",
                master + 1,
                primary + 1
            );
            for (after, node) in &elections {
                eprintln!("  node-{} elected after {:.1} s", node + 1, after.as_secs_f64());
            }
            eprintln!("  {transfers} transfers during the faults");
        });
        figures.count(round, &elections, transfers);
        tokio::time::sleep(CALM).await;
        caused.and(healed)
    }

    /// Causes the faults of a round, and waits for their time.
    async fn cause(&self, round: &Round, master: usize, primary: usize) -> Result<(), String> {
        match round.network {
            Some(NetworkFault::Cut { target, direction, clients }) => {
                let links = schedule::links(target.resolve(master, primary), direction, clients);
                self.change(move |network| network.cut(&links)).await?;
            }
            Some(NetworkFault::Slow { target, rate }) => {
                let node = target.resolve(master, primary);
                self.change(move |network| network.slow(node, rate)).await?;
            }
            Some(NetworkFault::Lossy { target, percent }) => {
                let node = target.resolve(master, primary);
                let links = schedule::links(node, Direction::Both, Clients::ReachOthers);
                let loss = Loss::Percent(percent);
                self.change(move |network| network.lose(&links, loss)).await?;
            }
            None => {}
        }
        if let Some(ProcessFault { kind, after }) = round.process {
            tokio::time::sleep(after).await;
            match kind {
                ProcessFaultKind::KillPrimary => self.cluster.kill(primary).await,
                ProcessFaultKind::PausePrimary => self.cluster.pause(primary).await,
                ProcessFaultKind::JumpClocks(offsets) => {
                    for (number, clock) in self.clocks.iter().enumerate() {
                        clock.set_ahead_ms(offsets[number % CLIENTS] * 1_000);
                    }
                }
            }
        }
        tokio::time::sleep(round.hold).await;
        Ok(())
    }

    /// Repairs everything, and waits until every copy is in place.
    async fn heal(&self, round: &Round, master: usize, primary: usize) -> Result<(), String> {
        self.change(Network::heal).await?;
        if let Some(NetworkFault::Slow { target, .. }) = round.network {
            let node = target.resolve(master, primary);
            self.change(move |network| network.unslow(node)).await?;
        }
        match round.process.map(|process| process.kind) {
            Some(ProcessFaultKind::KillPrimary) => self.cluster.restart(primary).await,
            Some(ProcessFaultKind::PausePrimary) => self.cluster.resume(primary).await,
            // The clocks stay wrong until they jump again.
            Some(ProcessFaultKind::JumpClocks(_)) | None => {}
        }
        self.cluster.is_green().await;
        Ok(())
    }

    /// Changes the network by programs of the machine, which block.
    async fn change(
        &self,
        what: impl FnOnce(&Network) -> txn_testkit::servers::Result<()> + Send + 'static,
    ) -> Result<(), String> {
        let network = self.network.clone();
        let done = tokio::task::spawn_blocking(move || what(&network)).await;
        done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}
