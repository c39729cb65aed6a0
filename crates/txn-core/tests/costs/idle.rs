//! The requests of a domain without transactions.

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::MemoryStore;
use txn_core::{Config, Domain};
use txn_sim::CountingStore;

use crate::support::Dice;

/// The interval of the janitor in the default settings, in seconds.
const INTERVAL: u64 = 10;

/// In seconds.
const HOUR: u64 = 3_600;

/// The requests of idle processes are bounded.
///
/// In an hour of T = 3,600 s with the interval I = 10 s, P processes send at most
/// 1.1 (2 P T / 1.25 I + 10 T / I) requests.
///
/// A process waits for 1 to 1.5 intervals, renews its entry in the registry, and reads the document
/// of the election. Only the elected process scans. A pass has nine requests, and a page more for
/// each 100 processes.
#[tokio::test(start_paused = true)]
async fn idle_processes_share_one_janitor() {
    for p in [1, 10, 100] {
        let store = Arc::new(CountingStore::new(Arc::new(MemoryStore::new())));
        let mut domains = Vec::new();
        for n in 0..p {
            let config = Config::default().with_process_name(format!("process {n}"));
            let config = config.with_entropy(Dice::new(n));
            let opened = Domain::open_or_create(store.clone(), "shop", config).await;
            domains.push(opened.expect("opens"));
        }
        tokio::time::sleep(Duration::from_secs(2 * INTERVAL)).await;
        let before = store.counts();
        tokio::time::sleep(Duration::from_secs(HOUR)).await;
        let counts = store.counts().since(before);
        println!("{p} processes: {counts}");
        let [of_processes, of_passes] = [2 * p * HOUR * 4 / (5 * INTERVAL), 10 * HOUR / INTERVAL];
        let most = (of_processes + of_passes) * 11 / 10;
        assert!(counts.requests() <= most, "{p} processes: {counts}, more than {most}");
        // A pass reads the registry and two days, and has two requests of administration.
        assert!(counts.scan <= 3 * HOUR / INTERVAL, "{p} processes: {counts}");
    }
}
