//! Many clients at once: plain requests, plain requests that start again on a conflict, and transactions: with requests of
//! their own, with shared ones, and composed into groups; by one process, or by several, which have nothing in common but the
//! server. In turn, as ratios of medians.
//!
//! `cargo bench -p txn-benches --bench throughput -- [spread|hot|counter|two|four…] [clients…]`; `TXN_BENCH_ROUNDS` and
//! `TXN_BENCH_SECONDS` set how many rounds there are and how long each is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_benches::{Bench, Failure, added, ids, unique};
use txn_core::Config;
use txn_sim::Counts;

/// A store that was asked nothing for so long has nothing left to do.
const QUIET: Duration = Duration::from_millis(100);

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    name: &'static str,
    /// Documents that there are.
    accounts: usize,
    /// Documents of one transfer.
    documents: usize,
    /// How many processes the clients are of.
    processes: usize,
}

const LOADS: [Load; 5] = [
    Load { name: "spread", accounts: 10_000, documents: 2, processes: 1 },
    Load { name: "hot", accounts: 10, documents: 3, processes: 1 },
    Load { name: "counter", accounts: 1, documents: 1, processes: 1 },
    Load { name: "two", accounts: 10, documents: 3, processes: 2 },
    Load { name: "four", accounts: 10, documents: 3, processes: 4 },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Retried,
    Own,
    Shared,
    Groups,
    /// Groups of several processes.
    Several,
}

impl Way {
    fn is_plain(self) -> bool {
        matches!(self, Self::Plain | Self::Retried)
    }

    fn of(load: Load) -> &'static [Self] {
        match load.name {
            "spread" => &[Self::Plain, Self::Own, Self::Shared, Self::Groups],
            "counter" => &[Self::Retried, Self::Groups],
            "two" | "four" => &[Self::Retried, Self::Groups, Self::Several],
            _ => &[Self::Retried, Self::Shared, Self::Groups],
        }
    }
}

/// What one round came to.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Per second, until the last is acknowledged.
    acknowledged: f64,
    /// Per second, until the last is applied.
    applied: f64,
    /// Requests to the server per transfer, and document writes.
    requests: f64,
    writes: f64,
    /// Of the times of one transfer, in milliseconds.
    median: f64,
    p99: f64,
    /// The most tries that a transfer took.
    tries: u32,
    /// What the process with the fewest transfers had of the one with the most.
    share: f64,
    transfers: i64,
}

fn from_environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let clients: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let clients = if clients.is_empty() { vec![1, 64, 256] } else { clients };
    let named = |load: &Load| words.iter().any(|word| word == load.name);
    let loads: Vec<Load> = LOADS.into_iter().filter(named).collect();
    let loads = if loads.is_empty() { LOADS.to_vec() } else { loads };
    let rounds = from_environment("TXN_BENCH_ROUNDS", 5.0) as usize;
    let span = Duration::from_secs_f64(from_environment("TXN_BENCH_SECONDS", 2.0));
    println!("medians of {rounds} rounds of {span:?}, in turn; ratios to the first way of a load");
    for load in loads {
        measure(load, &clients, rounds, span).await?;
    }
    Ok(())
}

async fn measure(
    load: Load,
    clients: &[usize],
    rounds: usize,
    span: Duration,
) -> Result<(), Failure> {
    let url = txn_testkit::env::elasticsearch_url();
    let with = |shared, groups| {
        Config::default().with_shared_requests(Some(shared)).with_groups(Some(groups))
    };
    let open = async |shared, groups| {
        let (name, config) = (unique(load.name), with(shared, groups));
        Ok::<_, Failure>(Arc::new(Bench::open_with(&url, &name, load.accounts, config).await?))
    };
    let own = open(false, false).await?;
    let shared = open(true, false).await?;
    let groups = open(true, true).await?;
    let mut several = Vec::new();
    if load.processes > 1 {
        let name = unique(load.name);
        let config = || with(true, true);
        several.push(Arc::new(Bench::open_with(&url, &name, load.accounts, config()).await?));
        for _ in 1..load.processes {
            several.push(Arc::new(Bench::beside(&url, &name, config()).await?));
        }
    }
    for part in ids(load.accounts).chunks(500) {
        let plain = part.iter().map(|id| format!("plain-{id}")).collect::<Vec<_>>();
        own.plain_transfer(&plain).await?;
    }
    println!("{}: {} of {} documents", load.name, load.documents, load.accounts);
    println!(
        "{:>7} {:>7} {:>12} {:>6} {:>12} {:>6} {:>9} {:>7} {:>8} {:>8} {:>6} {:>6}",
        "clients",
        "way",
        "acknowl./s",
        "ratio",
        "applied/s",
        "ratio",
        "requests",
        "writes",
        "ms",
        "p99",
        "tries",
        "share"
    );
    let mut transfers = 0;
    for &clients in clients {
        let ways = Way::of(load);
        let mut seen: Vec<Vec<Round>> = vec![Vec::new(); ways.len()];
        for round in 0..rounds + 1 {
            for (at, way) in ways.iter().enumerate() {
                let benches = match way {
                    Way::Plain | Way::Retried | Way::Own => std::slice::from_ref(&own),
                    Way::Shared => std::slice::from_ref(&shared),
                    Way::Groups => std::slice::from_ref(&groups),
                    Way::Several => &several,
                };
                let result = run(*way, load, benches, clients, span, round as u64).await?;
                if !way.is_plain() {
                    transfers += result.transfers;
                }
                // The first round only warms up.
                if round > 0 {
                    seen[at].push(result);
                }
            }
        }
        let first = seen.first().map_or(1.0, |rounds| median(rounds, |round| round.acknowledged));
        for (way, rounds) in ways.iter().zip(&seen) {
            let of = |of: fn(&Round) -> f64| median(rounds, of);
            let (acknowledged, applied) = (of(|r| r.acknowledged), of(|r| r.applied));
            println!(
                "{clients:>7} {:>7} {acknowledged:>12.0} {:>6.2} {applied:>12.0} {:>6.2} {:>9.2} {:>7.2} {:>8.2} {:>8.2} {:>6} {:>6.2}",
                format!("{way:?}").to_lowercase(),
                acknowledged / first,
                applied / first,
                of(|r| r.requests),
                of(|r| r.writes),
                of(|r| r.median),
                of(|r| r.p99),
                rounds.iter().map(|round| round.tries).max().unwrap_or_default(),
                of(|r| r.share),
            );
        }
    }
    let mut sum = 0;
    let alone = [own, shared, groups];
    let books = alone.iter().chain(several.first());
    let mut opened = 0;
    for bench in books {
        bench.settle().await?;
        sum += bench.sum(&ids(load.accounts)).await?;
        opened += 1_000 * i64::try_from(load.accounts)?;
    }
    for bench in several.iter().skip(1) {
        bench.leave().await;
    }
    for bench in alone.into_iter().chain(several.into_iter().take(1)) {
        Arc::into_inner(bench).ok_or("a client is left over")?.close().await?;
    }
    let expected = opened + added(load.documents) * transfers;
    println!("money: {sum} of {expected}");
    Ok(())
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Different documents, in any order.
fn picked(state: &mut u64, load: Load) -> Vec<usize> {
    let mut picked = Vec::with_capacity(load.documents);
    while picked.len() < load.documents {
        // xorshift
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let next = *state as usize % load.accounts;
        if !picked.contains(&next) {
            picked.push(next);
        }
    }
    picked
}

async fn run(
    way: Way,
    load: Load,
    benches: &[Arc<Bench>],
    clients: usize,
    span: Duration,
    seed: u64,
) -> Result<Round, Failure> {
    let counts = || benches.iter().map(|bench| bench.counts()).collect::<Vec<_>>();
    let requests = || counts().iter().map(Counts::requests).sum::<u64>();
    let before = counts();
    let start = Instant::now();
    let running: Vec<_> = (0..clients)
        .map(|client| {
            let bench = benches[client % benches.len()].clone();
            let mut state = (seed << 32 | client as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            tokio::spawn(async move {
                let mut times = Vec::new();
                let mut most = 0;
                while start.elapsed() < span {
                    let names = picked(&mut state, load).into_iter();
                    let prefix = if way.is_plain() { "plain-" } else { "" };
                    let names: Vec<_> = names.map(|n| format!("{prefix}account-{n:04}")).collect();
                    let began = Instant::now();
                    let tries = match way {
                        Way::Plain => bench.plain_transfer(&names).await.map(|()| 1)?,
                        Way::Retried => bench.retried_transfer(&names).await?,
                        Way::Own | Way::Shared | Way::Groups | Way::Several => {
                            bench.transact(&names).await?
                        }
                    };
                    times.push(began.elapsed().as_secs_f64() * 1e3);
                    most = most.max(tries);
                }
                Ok::<_, Failure>((times, most))
            })
        })
        .collect();
    let mut times = Vec::new();
    let mut tries = 0;
    let mut by_process = vec![0_usize; benches.len()];
    for (client, running) in running.into_iter().enumerate() {
        let (more, most) = running.await??;
        by_process[client % benches.len()] += more.len();
        times.extend(more);
        tries = tries.max(most);
    }
    let acknowledged = start.elapsed();
    let mut asked = requests();
    let mut applied = start.elapsed();
    while !way.is_plain() && start.elapsed() < applied + QUIET {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let now = requests();
        if now != asked {
            (asked, applied) = (now, start.elapsed());
        }
    }
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    let asked: Vec<Counts> =
        counts().into_iter().zip(before).map(|(now, before)| now.since(before)).collect();
    let sum = |of: fn(&Counts) -> u64| asked.iter().map(of).sum::<u64>() as f64;
    let fewest = by_process.iter().min().copied().unwrap_or_default() as f64;
    let at = |share: f64| times.get((count * share) as usize).copied().unwrap_or_default();
    Ok(Round {
        acknowledged: count / acknowledged.as_secs_f64(),
        applied: count / applied.as_secs_f64(),
        requests: sum(Counts::requests) / count,
        writes: sum(|counts| counts.documents_written) / count,
        median: at(0.5),
        p99: at(0.99),
        tries,
        share: fewest / by_process.iter().max().copied().unwrap_or_default().max(1) as f64,
        transfers: i64::try_from(times.len())?,
    })
}
