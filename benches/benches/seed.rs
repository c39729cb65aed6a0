//! The two-phase commit that this project began with, beside the bank: the same transfers between two accounts, each kept as a
//! document, at one client and at many. In turn, as medians.
//!
//! `cargo bench -p txn-benches --bench seed -- [clients…]`; `TXN_BENCH_ROUNDS` and `TXN_BENCH_SECONDS` set how many rounds there are
//! and how long each is. On OpenSearch the peer uses stored scripts, on Elasticsearch conditional merges.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use txn_bank::{Bank, Leg, NewAccount};
use txn_benches::seed::{Ended, Peer, Transfer, Way};
use txn_benches::{Failure, unique};
use txn_core::Config;
use txn_es::{EsConfig, EsStore};

/// No transfer is refused: so much nobody spends.
const BALANCE: i64 = 1 << 40;

/// Accounts that there are, by the name of the load.
const LOADS: [(&str, usize); 2] = [("spread", 1_000), ("hot", 10)];

/// Both of them on one server.
struct Pair {
    peer: Peer,
    bank: Bank,
    accounts: Vec<String>,
}

/// What one round came to.
struct Round {
    per_second: f64,
    median: f64,
    p99: f64,
}

fn from_environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let clients: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let clients = if clients.is_empty() { vec![1, 64] } else { clients };
    let rounds = from_environment("TXN_BENCH_ROUNDS", 3.0) as usize;
    let span = Duration::from_secs_f64(from_environment("TXN_BENCH_SECONDS", 2.0));
    println!("medians of {rounds} rounds of {span:?}, in turn; per second, and ms of one transfer");
    println!(
        "{:>14} {:>7} {:>7} {:>24} {:>24} {:>7}",
        "server", "load", "clients", "peer (p50, p99)", "bank (p50, p99)", "ratio"
    );
    let mut servers =
        vec![("elasticsearch", txn_testkit::env::elasticsearch_url(), Way::Conditions)];
    // `cargo xtask bench` starts one server.
    if let Ok(url) = std::env::var("TXN_OPENSEARCH_URL") {
        servers.push(("opensearch", url, Way::Scripts));
    }
    for (server, url, way) in servers {
        for (load, accounts) in LOADS {
            let pair = Arc::new(Pair::open(&url, way, accounts).await?);
            for &clients in &clients {
                let (mut peer, mut bank) = (Vec::new(), Vec::new());
                for _ in 0..rounds {
                    peer.push(round(&pair, clients, span, true).await?);
                    bank.push(round(&pair, clients, span, false).await?);
                }
                let (peer, bank) = (Round::median(&peer), Round::median(&bank));
                let ratio = bank.per_second / peer.per_second;
                println!("{server:>14} {load:>7} {clients:>7} {peer:>24} {bank:>24} {ratio:>7.2}");
            }
            pair.check().await?;
        }
    }
    Ok(())
}

impl Pair {
    async fn open(url: &str, way: Way, accounts: usize) -> Result<Self, Failure> {
        let name = unique("seed");
        let accounts: Vec<String> = (0..accounts).map(|at| format!("a{at}")).collect();
        let peer = Peer::new(url, &name, way, None)?;
        peer.create(&accounts, BALANCE).await?;
        let store = Arc::new(EsStore::connect(EsConfig::from_url(url)?).await?);
        let bank = Bank::create(store, &name, Config::default()).await?;
        let new = accounts.iter().map(|name| NewAccount::new(name, name, BALANCE, "EUR"));
        let new = new.collect::<Result<Vec<_>, _>>()?;
        for new in new.chunks(100) {
            bank.ensure_accounts(new).await?;
        }
        bank.domain().barrier(Duration::from_secs(60)).await?;
        Ok(Self { peer, bank, accounts })
    }

    async fn transfer(&self, by_peer: bool) -> Result<(), Failure> {
        let many = self.accounts.len();
        let from = fastrand::usize(0..many);
        let to = (from + fastrand::usize(1..many)) % many;
        let (from, to) = (self.accounts[from].clone(), self.accounts[to].clone());
        if !by_peer {
            self.bank.transfer(None, &[Leg::new(from, -1), Leg::new(to, 1)]).await?;
            return Ok(());
        }
        let transfer = Transfer { id: self.bank.new_key(), from, to, amount: 1 };
        match self.peer.transfer(&transfer).await? {
            Ended::Finished => Ok(()),
            ended => Err(format!("a transfer of the peer ended as {ended:?}").into()),
        }
    }

    /// The money of both is what it was.
    async fn check(&self) -> Result<(), Failure> {
        let whole = BALANCE * i64::try_from(self.accounts.len())?;
        let mut sum = 0;
        for account in &self.accounts {
            sum += self.peer.account(account).await?.balance;
        }
        let found = self.bank.accounts(&self.accounts).await?;
        let held: i64 = found.iter().map(|account| account.balance).sum();
        self.peer.remove().await?;
        self.bank.shutdown(Duration::from_secs(60)).await;
        match (sum, held) == (whole, whole) {
            true => Ok(()),
            false => Err(format!("the peer holds {sum}, the bank {held}, not {whole}").into()),
        }
    }
}

async fn round(
    pair: &Arc<Pair>,
    clients: usize,
    span: Duration,
    by_peer: bool,
) -> Result<Round, Failure> {
    let (began, mut work) = (Instant::now(), Vec::new());
    for _ in 0..clients {
        let pair = pair.clone();
        work.push(async move {
            let mut times = Vec::new();
            while began.elapsed() < span {
                let at = Instant::now();
                pair.transfer(by_peer).await?;
                times.push(at.elapsed());
            }
            Ok::<_, Failure>(times)
        });
    }
    let work = work.into_iter().map(|one| async { tokio::spawn(one).await? });
    let mut times: Vec<Duration> = try_join_all(work).await?.into_iter().flatten().collect();
    if !by_peer {
        // Until everything is applied: what the peer calls finished.
        pair.bank.domain().barrier(Duration::from_secs(60)).await?;
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort();
    let at = |quantile: f64| {
        let place = (times.len() as f64 * quantile) as usize;
        times.get(place.min(times.len().saturating_sub(1))).map_or(0.0, |t| t.as_secs_f64() * 1e3)
    };
    Ok(Round { per_second, median: at(0.5), p99: at(0.99) })
}

impl Round {
    fn median(rounds: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        let (per_second, median) = (of(|r| r.per_second), of(|r| r.median));
        Self { per_second, median, p99: of(|r| r.p99) }
    }
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { per_second, median, p99 } = self;
        f.pad(&format!("{per_second:.0} ({median:.1}, {p99:.1})"))
    }
}
