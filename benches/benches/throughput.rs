//! Many concurrent clients, by load and by way to move money.
//!
//! All ways run in turn, each with its costs.
//!
//! `cargo bench -p txn-benches --bench throughput -- [loads…] [clients…] [plain|groups…]`, with
//! the loads `spread`, `hot`, `counter`, `two` and `four`. `TXN_BENCH_ROUNDS` and
//! `TXN_BENCH_SECONDS` set the number of rounds and their duration. A single way is best for a
//! profiler.

use std::time::Duration;

use txn_benches::load::Load;
use txn_benches::measure::{Cell, Pace, measure};
use txn_benches::world::{Way, World};
use txn_benches::{Failure, from_environment};

/// Loads by name: accounts, documents of one transfer, processes, and ways.
///
/// Ratios refer to the first way.
const LOADS: [(&str, usize, usize, usize, &[Way]); 5] = [
    ("spread", 10_000, 2, 1, &[Way::Plain, Way::Batched, Way::Own, Way::Shared, Way::Groups]),
    ("hot", 10, 3, 1, &[Way::Retried, Way::Shared, Way::Groups]),
    ("counter", 1, 1, 1, &[Way::Retried, Way::Groups]),
    ("two", 10, 3, 2, &[Way::Retried, Way::Groups, Way::Several]),
    ("four", 10, 3, 4, &[Way::Retried, Way::Groups, Way::Several]),
];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let clients: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let clients = if clients.is_empty() { vec![1, 64, 256] } else { clients };
    let rounds = from_environment("TXN_BENCH_ROUNDS", 5.0) as usize;
    let span = Duration::from_secs_f64(from_environment("TXN_BENCH_SECONDS", 2.0));
    let is_named = |name: &str| words.iter().any(|word| word == name);
    let all = !LOADS.iter().any(|load| is_named(load.0));
    let world = World::open(&txn_testkit::env::elasticsearch_url()).await?;
    println!("medians of {rounds} rounds of {span:?}, in turn; ratios to the first way of a load");
    for (name, accounts, documents, processes, ways) in LOADS {
        if !all && !is_named(name) {
            continue;
        }
        println!("{name}: {documents} of {accounts} documents");
        for &clients in &clients {
            let load = Load::new(clients, documents, accounts);
            let processes = |way| if way == Way::Several { processes } else { 1 };
            let of = |way| Cell { way, load: Load { processes: processes(way), ..load } };
            let named: Vec<Cell> =
                ways.iter().filter(|way| is_named(way.name())).map(|way| of(*way)).collect();
            let cells =
                if named.is_empty() { ways.iter().map(|way| of(*way)).collect() } else { named };
            let measured = measure(&world, &cells, Pace { rounds, span }).await?;
            let first = measured.first().map_or(1.0, |one| one.round.per_second);
            for one in &measured {
                let round = &one.round;
                println!(
                    "{clients:>5} {:>18} {:>8.0}/s {:>7.2} applied {:>8.0}/s requests {:>5.2} writes {:>6.2} \
                     ms {:>7.2} p99 {:>7.2} us: client {:>4.0} server {:>4.0} tries {:>3} share {:.2} lost {} refused {:?}",
                    one.cell.way.name(),
                    round.per_second,
                    round.per_second / first,
                    round.applied_per_second,
                    round.requests,
                    round.writes,
                    round.times.p50,
                    round.times.p99,
                    round.client_cpu.unwrap_or(f64::NAN),
                    round.server_cpu.unwrap_or(f64::NAN),
                    round.tries,
                    round.share,
                    one.drift.lost,
                    round.refused,
                );
            }
        }
    }
    world.close().await
}
