//! Several processes on the same documents, in virtual time.
//!
//! The engine runs on the memory store, and each request takes 2 ms. So the values depend on the
//! order of requests and on pauses alone, and not on the machine.
//!
//! `cargo bench -p txn-benches --bench virtual_time -- [processes] [lone] [slow] [cold]`

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use tokio::time::{Instant, sleep, sleep_until};
use txn_benches::Failure;
use txn_benches::network::{Cold, Network};
use txn_benches::statistics::Times;
use txn_core::store::{MemoryStore, Store};
use txn_core::{Collection, Config, Domain, Error, LockMode, Options, Raw};

/// The number of documents that all processes want.
const HOT: usize = 10;

/// The duration of one request.
const REQUEST: Duration = Duration::from_millis(2);

/// The duration of one load.
const SPAN: Duration = Duration::from_secs(20);

/// The duration of a load with slow processes.
const LONG_SPAN: Duration = Duration::from_secs(60);

/// A process with clients on the hot documents.
#[derive(Clone)]
struct Process {
    domain: Domain,
    hot: Collection<Raw>,
    cold: Collection<Raw>,
}

/// The commits of the clients of one process.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    commits: u64,
    longest: Duration,
}

impl Process {
    async fn open(store: &Arc<MemoryStore>, network: Network) -> Result<Self, Error> {
        let store: Arc<dyn Store> = Arc::new(network.before(store.clone()));
        let config = Config::default()
            .with_janitor_interval(None)
            .with_group_commit(Some(true))
            .with_request_batching(Some(true));
        let domain = Domain::open_or_create(store, "shop", config).await?;
        let hot = domain.create_collection("hot", None).await?;
        let cold = domain.create_collection("cold", None).await?;
        Ok(Self { domain, hot, cold })
    }

    async fn several(number: usize) -> Result<Vec<Self>, Error> {
        let store = Arc::new(MemoryStore::new());
        let mut all = Vec::new();
        for _ in 0..number {
            all.push(Self::open(&store, Network::new(REQUEST)).await?);
        }
        Ok(all)
    }

    /// Writes documents that it reads, in one transaction.
    async fn write(
        &self,
        of: &Collection<Raw>,
        ids: &[String],
        options: &Options,
    ) -> Result<(), Error> {
        let written = self.domain.run(options, async |tx| {
            tx.get_many(of, ids.iter().map(String::as_str)).await?;
            ids.iter().try_for_each(|id| tx.put(of, id.as_str(), &Raw::new("{}")))
        });
        written.await.map(drop)
    }

    /// Writes three of the hot documents again and again until `ends`.
    ///
    /// Each of `number` clients runs one transaction after the other.
    async fn clients(&self, number: usize, ends: Instant) -> Done {
        let clients = (0..number).map(|client| async move {
            let (mut done, mut round) = (Done::default(), client);
            while Instant::now() < ends {
                round += 7;
                let ids = [round, round + 1 + client % 4, round + 6].map(|n| (n % HOT).to_string());
                let began = Instant::now();
                if self.write(&self.hot, &ids, &Options::default()).await.is_ok() {
                    done.commits += 1;
                }
                done.longest = done.longest.max(began.elapsed());
            }
            done
        });
        join_all(clients).await.into_iter().fold(Done::default(), Done::and)
    }

    /// Runs one transaction after the other until `ends`.
    ///
    /// A pause follows each transaction.
    ///
    /// Returns the durations, and the number of failures.
    async fn lone<F>(
        &self,
        ends: Instant,
        pause: Duration,
        transaction: F,
    ) -> (Vec<Duration>, usize)
    where
        F: AsyncFn(&Self) -> Result<(), Error>,
    {
        let (mut durations, mut failed) = (Vec::new(), 0);
        while Instant::now() < ends {
            let began = Instant::now();
            match transaction(self).await {
                Ok(()) => durations.push(began.elapsed()),
                Err(_) => failed += 1,
            }
            sleep(pause).await;
        }
        (durations, failed)
    }
}

impl Done {
    fn and(self, other: Self) -> Self {
        Self { commits: self.commits + other.commits, longest: self.longest.max(other.longest) }
    }
}

/// Compares equal processes with one process.
///
/// The one process has as many clients as each of the others.
async fn processes() -> Result<(), Error> {
    println!(
        "| clients each | processes | commits | of one process | slowest / fastest | longest |"
    );
    println!("|---|---|---|---|---|---|");
    for clients in [2, 4, 8, 32] {
        let mut one = 0.0;
        for number in [1, 2, 4, 8, 16] {
            let all = Process::several(number).await?;
            let ends = Instant::now() + SPAN;
            let done = join_all(all.iter().map(|process| process.clients(clients, ends))).await;
            let sum = done.iter().copied().fold(Done::default(), Done::and);
            if number == 1 {
                one = sum.commits as f64;
            }
            let [least, most] = [
                done.iter().map(|done| done.commits).min().unwrap_or_default(),
                done.iter().map(|done| done.commits).max().unwrap_or_default(),
            ];
            println!(
                "| {clients} | {number} | {} | {:.2} | {:.2} | {:?} |",
                sum.commits,
                sum.commits as f64 / one,
                least as f64 / most as f64,
                sum.longest
            );
        }
    }
    Ok(())
}

/// A transaction that one client repeats.
type Lone = for<'a> fn(&'a Process) -> BoxFuture<'a, Result<(), Error>>;

/// One client in a process of its own, beside busy processes.
async fn lone() -> Result<(), Error> {
    let cases: [(&str, Lone); 3] = [
        ("two documents", |one| {
            Box::pin(async { one.write(&one.hot, &two(), &Options::default()).await })
        }),
        ("two documents, not in groups", |one| {
            let options = Options::default().with_lock_mode(LockMode::AtCommitUngrouped);
            Box::pin(async move { one.write(&one.hot, &two(), &options).await })
        }),
        ("ten documents, read-only", |one| {
            let options = Options::default().with_read_only(true);
            Box::pin(async move {
                let read = one
                    .domain
                    .run(&options, async |tx| tx.get_many(&one.hot, ids(HOT)).await.map(drop));
                read.await.map(drop)
            })
        }),
    ];
    let busy = [(1, 32), (4, 8)];
    let mut without = Vec::new();
    for (processes, clients) in busy {
        without.push(busy_alone(processes, clients, SPAN).await?);
    }
    println!(
        "| one client | busy | p99 alone, ms | p99, ms | ratio | longest, ms | busy keep | failed |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, case) in cases {
        let alone = beside(case, 0, 0).await?.times.p99;
        for ((processes, clients), without) in busy.into_iter().zip(&without) {
            let Beside { times, failed, busy } = beside(case, processes, clients).await?;
            println!(
                "| {name} | {processes} x {clients} | {alone:.0} | {:.0} | {:.1} | {:.0} | {:.2} | {failed} |",
                times.p99,
                times.p99 / alone,
                times.longest,
                busy as f64 / *without as f64,
            );
        }
    }
    Ok(())
}

fn two() -> [String; 2] {
    ["3", "7"].map(str::to_owned)
}

/// The transactions of lone processes, and the commits beside them.
///
/// The commits are those of the busy processes.
struct Beside {
    times: Times,
    failed: usize,
    busy: u64,
}

async fn beside(case: Lone, busy: usize, clients: usize) -> Result<Beside, Error> {
    let all = Process::several(busy + 1).await?;
    let (lone, busy) = (&all[0], &all[1..]);
    lone.write(&lone.hot, &ids(HOT), &Options::default()).await?;
    let ends = Instant::now() + SPAN;
    let transactions = lone.lone(ends, Duration::ZERO, async |one: &Process| case(one).await);
    let (busy, (durations, failed)) = futures::join!(commits(busy, clients, ends), transactions);
    Ok(Beside { times: Times::of(&durations), failed, busy })
}

async fn busy_alone(processes: usize, clients: usize, span: Duration) -> Result<u64, Error> {
    let all = Process::several(processes).await?;
    Ok(commits(&all, clients, Instant::now() + span).await)
}

/// Runs the clients of busy processes, and counts their commits.
async fn commits(processes: &[Process], clients: usize, ends: Instant) -> u64 {
    let done = join_all(processes.iter().map(|process| process.clients(clients, ends))).await;
    done.iter().map(|done| done.commits).sum()
}

/// Processes with requests that take 300 ms longer, beside fast processes.
///
/// The load is longer than the others, because a slow process commits every six seconds.
async fn slow() -> Result<(), Error> {
    println!(
        "| slow processes | documents | fast | alone, ms | median, ms | longest, ms | ratio | fast keep | failed |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let without =
        [(1, busy_alone(1, 8, LONG_SPAN).await?), (4, busy_alone(4, 8, LONG_SPAN).await?)];
    for documents in [2, 1_000] {
        let alone = slow_beside(1, documents, 0).await?.times.longest;
        for (slow, (fast, without)) in [(1, without[0]), (1, without[1]), (2, without[1])] {
            let Beside { times, failed, busy } = slow_beside(slow, documents, fast).await?;
            println!(
                "| {slow} | {documents} | {fast} x 8 | {alone:.0} | {:.0} | {:.0} | {:.1} | {:.2} | {failed} |",
                times.p50,
                times.longest,
                times.longest / alone,
                busy as f64 / without as f64,
            );
        }
    }
    Ok(())
}

async fn slow_beside(slow: usize, documents: usize, fast: usize) -> Result<Beside, Error> {
    let store = Arc::new(MemoryStore::new());
    let mut open = Vec::new();
    for at in 0..slow + fast {
        let more = if at < slow { Duration::from_millis(300) } else { Duration::ZERO };
        open.push(Process::open(&store, Network::new(REQUEST + more)).await?);
    }
    let (slow, fast) = open.split_at(slow);
    let ids = &ids(documents);
    let ends = Instant::now() + LONG_SPAN;
    let lone = join_all(slow.iter().map(|process| {
        process.lone(ends, Duration::from_millis(200), async |one: &Process| {
            one.write(&one.hot, ids, &Options::default()).await
        })
    }));
    let (busy, lone) = futures::join!(commits(fast, 8, ends), lone);
    let failed = lone.iter().map(|(_, failed)| failed).sum();
    let durations: Vec<Duration> = lone.into_iter().flat_map(|(durations, _)| durations).collect();
    Ok(Beside { times: Times::of(&durations), failed, busy })
}

fn ids(number: usize) -> Vec<String> {
    (0..number).map(|id| id.to_string()).collect()
}

/// Hot documents, while transactions on another collection fail or wait.
async fn cold() -> Result<(), Error> {
    println!("| the other collection | hot commits | of before |");
    println!("|---|---|---|");
    let mut before = 0.0;
    for (name, cold) in [
        ("sound", Cold::Sound),
        ("blocked", Cold::Blocked),
        ("unmapped", Cold::Unmapped),
        ("answers after 2 s", Cold::Slow(Duration::from_secs(2))),
    ] {
        let store = Arc::new(MemoryStore::new());
        let process = Process::open(&store, Network::new(REQUEST).with_cold("cold", cold)).await?;
        let ends = Instant::now() + SPAN;
        // Twenty transactions per second; those that wait at the end are dropped.
        let others = async {
            let mut open = Vec::new();
            let began = Instant::now();
            for n in 0..(20 * SPAN.as_secs()) {
                let process = &process;
                open.push(async move {
                    sleep_until(began + Duration::from_millis(50 * n)).await;
                    let ids = [n.to_string(), format!("{n}-b")];
                    drop(process.write(&process.cold, &ids, &Options::default()).await);
                });
            }
            let all = join_all(open);
            futures::future::select(Box::pin(all), Box::pin(sleep_until(ends))).await;
        };
        let (done, ()) = futures::join!(process.clients(32, ends), others);
        if before == 0.0 {
            before = done.commits as f64;
        }
        println!("| {name} | {} | {:.2} |", done.commits, done.commits as f64 / before);
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let is_named = |name: &str| words.iter().any(|word| word == name);
    let all = !["processes", "lone", "slow", "cold"].into_iter().any(is_named);
    let began = std::time::Instant::now();
    if all || is_named("processes") {
        processes().await?;
    }
    if all || is_named("lone") {
        lone().await?;
    }
    if all || is_named("slow") {
        slow().await?;
    }
    if all || is_named("cold") {
        cold().await?;
    }
    println!("{:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}
