//! The workload of the account transactions in the schema book.
//!
//! Four processes with pools of 50 connections, and 1,000 users that arrive in each of 25 seconds.
//! The report also shows the book's results, from another machine and another database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use txn_core::Options;

use super::findings::{Findings, Pool};
use crate::Failure;
use crate::accounts::ids;
use crate::load::{Load, Picker};
use crate::seed::{Ended, Peer, Transfer, Way as PeerWay};
use crate::statistics::Times;
use crate::unique;
use crate::world::{PROCESSES, Way, World};

/// The number of connections of a process.
const POOL: usize = 50;

/// The number of rounds of a second each. The second number is that of users per round.
const ROUNDS: u32 = 25;
const USERS: usize = 1_000;

/// The number of accounts, which the book does not state.
const ACCOUNTS: usize = 1_000;

/// The results of the book. Each has the run time in seconds, and the mean, 95th and 99th
/// percentile in milliseconds.
const BOOK: [(&str, f64, f64, f64, f64); 2] = [
    ("the book, MongoDB 3.0.1 with MMAP", 48.086, 9_951.659, 25_750.843, 34_520.997),
    ("the book, MongoDB 3.0.1 with WiredTiger", 46.653, 8_655.022, 19_937.439, 29_972.029),
];

/// The systems that carry transfers out.
#[derive(Clone)]
enum Who {
    Plain,
    Transactions,
    Peers(Arc<Vec<Peer>>),
}

/// Runs the workload: plain, as transactions, and by the two-phase commit.
pub(super) async fn pools(
    world: &Arc<World>,
    url: &str,
    way: PeerWay,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for ours in [Way::Retried, Way::Several] {
        world.prepare(ours, ACCOUNTS).await?;
    }
    let name = unique("pools");
    let peer = || Peer::new(url, &name, way, None);
    let peers = (0..PROCESSES).map(|_| peer()).collect::<Result<Vec<_>, _>>()?;
    peers[0].create(&ids(ACCOUNTS), 1 << 40).await?;
    let peers = Arc::new(peers);
    for (name, who) in [
        ("plain clients that start again on a conflict", Who::Plain),
        ("transactions", Who::Transactions),
        ("the two-phase commit of `benches/src/seed`", Who::Peers(peers.clone())),
    ] {
        findings.pools.push(run(world, name, &who).await?);
    }
    let drift = world.audit(Way::Several).await?;
    peers[0].remove().await?;
    drift.none_after("the pools")?;
    world.audit(Way::Retried).await?;
    findings.pools.extend(BOOK.map(|(who, run_time, mean, p95, p99)| Pool {
        who: who.to_owned(),
        run_time,
        mean,
        p95,
        p99,
    }));
    Ok(())
}

async fn run(world: &Arc<World>, name: &str, who: &Who) -> Result<Pool, Failure> {
    let pools: Vec<_> = (0..PROCESSES).map(|_| Arc::new(Semaphore::new(POOL))).collect();
    let picker = Picker::new(Load::new(1, 2, ACCOUNTS));
    let mut random = fastrand::Rng::with_seed(25);
    let began = Instant::now();
    let mut users = Vec::new();
    for round in 0..ROUNDS {
        let due = Duration::from_secs(round.into()).saturating_sub(began.elapsed());
        tokio::time::sleep(due).await;
        for user in 0..USERS {
            let process = user % PROCESSES;
            let (pool, who, world) = (pools[process].clone(), who.clone(), world.clone());
            let picked = picker.pick(&mut random);
            let arrived = Instant::now();
            users.push(tokio::spawn(async move {
                let _connection = pool.acquire().await?;
                who.transfer(&world, process, &picked).await?;
                Ok::<_, Failure>(arrived.elapsed())
            }));
        }
    }
    let mut times = Vec::new();
    for user in users {
        times.push(user.await??);
    }
    let run_time = began.elapsed().as_secs_f64();
    match who {
        Who::Plain => world.acknowledged(Way::Retried, 2, times.len()),
        Who::Transactions => world.acknowledged(Way::Several, 2, times.len()),
        Who::Peers(_) => {}
    }
    let Times { mean, p95, p99, .. } = Times::of(&times);
    Ok(Pool { who: name.to_owned(), run_time, mean, p95, p99 })
}

impl Who {
    async fn transfer(
        &self,
        world: &World,
        process: usize,
        picked: &[usize],
    ) -> Result<(), Failure> {
        let by = async |way| {
            let names: Vec<String> = picked.iter().map(|at| World::id(way, *at)).collect();
            world.transfer(way, process, &names, &Options::default()).await
        };
        match self {
            Self::Plain => drop(by(Way::Retried).await?),
            Self::Transactions => drop(by(Way::Several).await?),
            Self::Peers(peers) => {
                let name = |at: usize| format!("account-{at:04}");
                let (from, to) = (name(picked[0]), name(picked[1]));
                let id = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
                let ended = peers[process].transfer(&Transfer { id, from, to, amount: 1 }).await?;
                if ended != Ended::Finished {
                    return Err(format!("a transfer of the peer ended as {ended:?}").into());
                }
            }
        }
        Ok(())
    }
}
