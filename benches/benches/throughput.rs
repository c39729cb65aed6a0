//! Many clients at once: plain requests, transactions with a request each, and transactions that share requests, in turn,
//! as ratios of medians.
//!
//! `cargo bench -p txn-benches --bench throughput -- [clients…]`; `TXN_BENCH_ROUNDS` and `TXN_BENCH_SECONDS` set how many
//! rounds there are and how long each is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use txn_benches::{Bench, Failure, ids, unique};

const ACCOUNTS: usize = 10_000;

/// A store that was asked nothing for so long has nothing left to do.
const QUIET: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Own,
    Shared,
}

/// What one round came to.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Per second, until the last is acknowledged.
    acknowledged: f64,
    /// Per second, until the last is applied.
    applied: f64,
    /// Requests to the server per transfer.
    requests: f64,
    /// Median of the times of one transfer, in milliseconds.
    median: f64,
}

fn from_environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let clients: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let clients = if clients.is_empty() { vec![1, 64, 256] } else { clients };
    let rounds = from_environment("TXN_BENCH_ROUNDS", 5.0) as usize;
    let span = Duration::from_secs_f64(from_environment("TXN_BENCH_SECONDS", 2.0));
    let url = txn_testkit::env::elasticsearch_url();
    let own = Bench::open_sharing(&url, &unique("through"), ACCOUNTS, Some(false)).await?;
    let shared = Arc::new(own.beside(Some(true)).await?);
    let own = Arc::new(own);
    let all = ids(ACCOUNTS);
    for part in all.chunks(500) {
        own.plain_transfer(&part.iter().map(|id| format!("plain-{id}")).collect::<Vec<_>>())
            .await?;
    }
    let ways = [(Way::Plain, &own), (Way::Own, &own), (Way::Shared, &shared)];
    println!(
        "transfers between 2 of {ACCOUNTS} accounts; median of {rounds} rounds of {span:?}, in turn; plain is _mget and _bulk"
    );
    println!(
        "{:>7} {:>7} {:>12} {:>6} {:>12} {:>6} {:>9} {:>8}",
        "clients", "way", "acknowl./s", "ratio", "applied/s", "ratio", "requests", "ms"
    );
    for clients in clients {
        let mut seen: [Vec<Round>; 3] = Default::default();
        for round in 0..rounds + 1 {
            for (at, (way, bench)) in ways.iter().enumerate() {
                let result = run(*way, bench, clients, span, round as u64).await?;
                // The first round only warms up.
                if round > 0 {
                    seen[at].push(result);
                }
            }
        }
        let plain = median(&seen[0], |round| round.acknowledged);
        for ((way, _), rounds) in ways.iter().zip(&seen) {
            let acknowledged = median(rounds, |round| round.acknowledged);
            let applied = median(rounds, |round| round.applied);
            let (requests, ms) = (median(rounds, |r| r.requests), median(rounds, |r| r.median));
            println!(
                "{clients:>7} {:>7} {acknowledged:>12.0} {:>6.2} {applied:>12.0} {:>6.2} {requests:>9.2} {ms:>8.2}",
                format!("{way:?}").to_lowercase(),
                acknowledged / plain,
                applied / plain
            );
        }
    }
    own.settle().await?;
    shared.domain.shutdown(Duration::from_secs(10)).await;
    match Arc::try_unwrap(own) {
        Ok(own) => own.close().await,
        Err(_) => Err("a client is left over".into()),
    }
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

async fn run(
    way: Way,
    bench: &Arc<Bench>,
    clients: usize,
    span: Duration,
    seed: u64,
) -> Result<Round, Failure> {
    let before = bench.counts();
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let running: Vec<_> = (0..clients)
        .map(|client| {
            let (bench, done) = (bench.clone(), done.clone());
            let mut state = (seed << 32 | client as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut pick = move || {
                // xorshift
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as usize % ACCOUNTS
            };
            tokio::spawn(async move {
                let mut times = Vec::new();
                while start.elapsed() < span {
                    let from = pick();
                    let to = (from + 1 + pick() % (ACCOUNTS - 1)) % ACCOUNTS;
                    let began = Instant::now();
                    if way == Way::Plain {
                        let names = [from, to].map(|n| format!("plain-account-{n:04}"));
                        bench.plain_transfer(&names).await?;
                    } else {
                        let names = [from, to].map(|n| format!("account-{n:04}"));
                        bench.transact(&names).await?;
                    }
                    times.push(began.elapsed().as_secs_f64() * 1e3);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Failure>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in running {
        times.extend(client.await??);
    }
    let acknowledged = start.elapsed();
    let mut requests = bench.counts().requests();
    let mut applied = start.elapsed();
    while way != Way::Plain && start.elapsed() < applied + QUIET {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let now = bench.counts().requests();
        if now != requests {
            (requests, applied) = (now, start.elapsed());
        }
    }
    times.sort_by(f64::total_cmp);
    let count = done.load(Ordering::Relaxed) as f64;
    let asked = match way {
        Way::Plain => 2.0,
        Way::Own | Way::Shared => bench.counts().since(before).requests() as f64 / count,
    };
    Ok(Round {
        acknowledged: count / acknowledged.as_secs_f64(),
        applied: count / applied.as_secs_f64(),
        requests: asked,
        median: times.get(times.len() / 2).copied().unwrap_or_default(),
    })
}
