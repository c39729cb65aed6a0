//! The project's original two-phase commit, compared with the bank.
//!
//! One client and many clients, in turn, as medians.
//!
//! `cargo bench -p txn-benches --bench seed -- [clients…]`. `TXN_BENCH_ROUNDS` and
//! `TXN_BENCH_SECONDS` set the number of rounds and their duration. On OpenSearch the peer uses
//! stored scripts, on Elasticsearch conditional merges.

use std::time::Duration;

use txn_benches::pair::Pair;
use txn_benches::seed::Way;
use txn_benches::{Failure, from_environment};
use txn_core::Config;

/// The number of accounts, by the name of the load.
const LOADS: [(&str, usize); 2] = [("spread", 1_000), ("hot", 10)];

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
    if let Ok(url) = std::env::var("TXN_OPENSEARCH_URL") {
        servers.push(("opensearch", url, Way::Scripts));
    }
    for (server, url, way) in servers {
        for (load, accounts) in LOADS {
            let pair = Pair::open(&url, way, accounts, Config::default()).await?;
            for &clients in &clients {
                let [peer, bank] = pair.measure(clients, rounds, span).await?;
                let ratio = bank.per_second / peer.per_second;
                println!("{server:>14} {load:>7} {clients:>7} {peer:>24} {bank:>24} {ratio:>7.2}");
            }
            pair.close().await?;
        }
    }
    Ok(())
}
