//! Rounds of several cells in turn, and their medians.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use txn_core::{AttemptId, Options};
use txn_sim::Counts;

use crate::Failure;
use crate::load::{Load, Picker};
use crate::statistics::{Times, median};
use crate::usage::Process;
use crate::world::{Drift, Way, World};

/// After this time without requests, a store counts as idle.
const QUIET: Duration = Duration::from_millis(100);

/// A measurement: a load, carried out in one way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The way.
    pub way: Way,
    /// The load.
    pub load: Load,
}

/// The duration of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// The number of rounds.
    pub rounds: usize,
    /// The duration of each round.
    pub span: Duration,
}

/// The result of one round, or the median of several.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    /// Transfers per second, until the last is acknowledged.
    pub per_second: f64,
    /// Transfers per second, until the last is applied.
    pub applied_per_second: f64,
    /// The times of one transfer, in milliseconds.
    pub times: Times,
    /// Requests to the server per transfer; transactions only.
    pub requests: f64,
    /// Document writes per transfer; transactions only.
    pub writes: f64,
    /// Transfers per commit; transactions only.
    pub composed: f64,
    /// Documents that one commit writes; transactions only.
    pub written: f64,
    /// The maximum number of tries of a transfer.
    pub tries: u32,
    /// The ratio between the processes with the fewest and the most transfers.
    pub share: f64,
    /// Processor time of this process per transfer, in microseconds, with the clients.
    pub client_cpu: Option<f64>,
    /// Processor time of the server per transfer, in microseconds.
    pub server_cpu: Option<f64>,
    /// The number of refusals, by the kind of the error.
    pub refused: BTreeMap<String, usize>,
}

/// A cell with its result.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The cell.
    pub cell: Cell,
    /// The median of its rounds.
    pub round: Round,
    /// The drift of its accounts. Cells of the same measurement and way share it.
    pub drift: Drift,
}

/// Measures cells in turn, and counts the money at the end.
///
/// In turn, because a disturbance of the machine then affects all cells alike.
///
/// # Errors
/// As the server.
pub async fn measure(
    world: &Arc<World>,
    cells: &[Cell],
    pace: Pace,
) -> Result<Vec<Measured>, Failure> {
    for cell in cells {
        world.prepare(cell.way, cell.load.accounts).await?;
    }
    let mut seen: Vec<Vec<Round>> = vec![Vec::new(); cells.len()];
    for number in 0..=pace.rounds {
        for (cell, seen) in cells.iter().zip(&mut seen) {
            // The first round is a warm-up.
            let span = if number == 0 { pace.span / 2 } else { pace.span };
            let round = run(world, *cell, span, number as u64).await?;
            if number > 0 {
                seen.push(round);
            }
        }
    }
    let mut drifts = BTreeMap::new();
    for way in cells.iter().map(|cell| cell.way) {
        if let Entry::Vacant(vacant) = drifts.entry(way) {
            vacant.insert(world.audit(way).await?);
        }
    }
    let measured = cells.iter().zip(&seen).map(|(cell, rounds)| Measured {
        cell: *cell,
        round: Round::median(rounds),
        drift: drifts.get(&cell.way).copied().unwrap_or_default(),
    });
    Ok(measured.collect())
}

impl Round {
    /// Returns the median of several rounds.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| median(rounds.iter().map(value));
        let known = |value: fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = rounds.iter().filter_map(value).collect();
            (values.len() == rounds.len()).then(|| median(values))
        };
        let times: Vec<Times> = rounds.iter().map(|round| round.times).collect();
        let mut refused = BTreeMap::new();
        for (kind, count) in rounds.iter().flat_map(|round| &round.refused) {
            *refused.entry(kind.clone()).or_default() += count;
        }
        Self {
            per_second: of(|round| round.per_second),
            applied_per_second: of(|round| round.applied_per_second),
            times: Times::median(&times),
            requests: of(|round| round.requests),
            writes: of(|round| round.writes),
            composed: of(|round| round.composed),
            written: of(|round| round.written),
            tries: rounds.iter().map(|round| round.tries).max().unwrap_or_default(),
            share: of(|round| round.share),
            client_cpu: known(|round| round.client_cpu),
            server_cpu: known(|round| round.server_cpu),
            refused,
        }
    }
}

/// The work of one client.
#[derive(Debug, Default)]
struct Done {
    times: Vec<Duration>,
    transfers: usize,
    tries: u32,
    refused: BTreeMap<String, usize>,
    unknown: Vec<AttemptId>,
}

/// The requests to the stores, and the processor times, so far.
struct Meter {
    counts: Vec<Counts>,
    commits: (u64, u64),
    client: Option<Duration>,
    server: Option<Duration>,
}

impl Meter {
    fn read(world: &World, cell: Cell) -> Self {
        let banks = world.banks(cell.way, cell.load.processes);
        let commits = banks.iter().map(crate::accounts::Bank::commits);
        Self {
            counts: banks.iter().map(crate::accounts::Bank::counts).collect(),
            commits: commits.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
            client: Process::this().processor_time(),
            server: world.server().and_then(Process::processor_time),
        }
    }

    fn requests(&self) -> u64 {
        self.counts.iter().map(Counts::requests).sum()
    }
}

async fn run(world: &Arc<World>, cell: Cell, span: Duration, seed: u64) -> Result<Round, Failure> {
    let Cell { way, load } = cell;
    let before = Meter::read(world, cell);
    let start = Instant::now();
    let picker = Picker::new(load);
    let running: Vec<_> = (0..load.clients)
        .map(|at| {
            let random = fastrand::Rng::with_seed(seed << 32 | at as u64);
            tokio::spawn(client(world.clone(), cell, at, picker.clone(), random, start + span))
        })
        .collect();
    let mut all = Done::default();
    let mut by_process = vec![0_usize; load.processes];
    for (at, running) in running.into_iter().enumerate() {
        let done = running.await?;
        by_process[at % load.processes] += done.times.len();
        all.add(done);
    }
    let acknowledged = start.elapsed();
    let mut after = Meter::read(world, cell);
    let mut applied = start.elapsed();
    while !way.is_plain() && start.elapsed() < applied + QUIET {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let now = Meter::read(world, cell);
        if now.requests() != after.requests() {
            applied = start.elapsed();
        }
        after = now;
    }
    world.acknowledged(way, load.documents, all.transfers);
    world.find_out(way, load.documents, &all.unknown).await?;
    let count = all.times.len().max(1) as f64;
    let asked: Vec<Counts> =
        after.counts.iter().zip(&before.counts).map(|(now, before)| now.since(*before)).collect();
    let sum = |of: fn(&Counts) -> u64| asked.iter().map(of).sum::<u64>() as f64;
    let commits = (after.commits.0 - before.commits.0) as f64;
    let took = |before: Option<Duration>, after: Option<Duration>| {
        Some(after?.saturating_sub(before?).as_secs_f64() * 1e6 / count)
    };
    let fewest = by_process.iter().min().copied().unwrap_or_default() as f64;
    Ok(Round {
        per_second: all.times.len() as f64 / acknowledged.as_secs_f64(),
        applied_per_second: all.times.len() as f64 / applied.as_secs_f64(),
        times: Times::of(&all.times),
        requests: sum(Counts::requests) / count,
        writes: sum(|counts| counts.documents_written) / count,
        composed: if commits > 0.0 { all.transfers as f64 / commits } else { 0.0 },
        written: (after.commits.1 - before.commits.1) as f64 / commits.max(1.0),
        tries: all.tries,
        share: fewest / by_process.iter().max().copied().unwrap_or_default().max(1) as f64,
        client_cpu: took(before.client, after.client),
        server_cpu: took(before.server, after.server),
        refused: all.refused,
    })
}

async fn client(
    world: Arc<World>,
    cell: Cell,
    at: usize,
    picker: Picker,
    mut random: fastrand::Rng,
    end: Instant,
) -> Done {
    let Cell { way, load } = cell;
    let options = Options::default();
    let mut done = Done::default();
    while Instant::now() < end {
        let ids: Vec<String> =
            picker.pick(&mut random).into_iter().map(|account| World::id(way, account)).collect();
        let began = Instant::now();
        let reads = random.f64() < load.reads;
        let result = if reads {
            world.look(way, &ids).await
        } else {
            world.transfer(way, at % load.processes, &ids, &options).await
        };
        match result {
            Ok(tries) => {
                done.times.push(began.elapsed());
                done.transfers += usize::from(!reads);
                done.tries = done.tries.max(tries);
            }
            Err(refused) => {
                done.unknown.extend(refused.unknown);
                *done.refused.entry(refused.kind).or_default() += 1;
            }
        }
    }
    done
}

impl Done {
    fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.transfers += other.transfers;
        self.tries = self.tries.max(other.tries);
        self.unknown.extend(other.unknown);
        for (kind, count) in other.refused {
            *self.refused.entry(kind).or_default() += count;
        }
    }
}
