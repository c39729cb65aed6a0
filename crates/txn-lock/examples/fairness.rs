//! Measures the fairness of a lock that two processes want.
//!
//! Usage: `cargo run --release -p txn-lock --example fairness -- [memory|FILE|URL] [seconds]`
//! `[callers] [hold in ms]`.
//!
//! The first process has several callers that take the lock repeatedly, the second process has one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use txn_core::store::{MemoryStore, Store};
use txn_core::{Config, Domain};
use txn_lock::{LockConfig, LockError, LockService};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A grant that a caller received.
#[derive(Clone, Copy)]
struct Grant {
    token: u64,
    process: usize,
    waited: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().unwrap_or_else(|| "memory".to_owned());
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (seconds, callers, hold) = (number(5)?, number(4)?, number(2)?);
    let store: Arc<dyn Store> = match place.as_str() {
        "memory" => Arc::new(MemoryStore::new()),
        url if url.starts_with("http") => {
            Arc::new(txn_es::EsStore::connect(txn_es::EsConfig::from_url(url)?).await?)
        }
        file => Arc::new(txn_redb::RedbStore::open(file)?),
    };
    let name = txn_fixtures::unique("fairness");
    let grants: Arc<Mutex<Vec<Grant>>> = Arc::default();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = tokio::task::JoinSet::new();
    for (process, callers) in [(0, callers), (1, 1)] {
        let domain = Domain::open_or_create(store.clone(), &name, Config::default()).await?;
        let service = LockService::open(&domain, LockConfig::default()).await?;
        for _ in 0..callers {
            let (service, grants) = (service.clone(), grants.clone());
            tasks.spawn(async move {
                while Instant::now() < until {
                    let asked = Instant::now();
                    let guard = service.lock("example", "hot", Duration::from_secs(60)).await?;
                    let waited = asked.elapsed();
                    grants.lock().push(Grant { token: guard.token(), process, waited });
                    tokio::time::sleep(Duration::from_millis(hold)).await;
                    guard.unlock().await?;
                }
                Ok::<_, LockError>(())
            });
        }
    }
    for done in tasks.join_all().await {
        done?;
    }
    let mut grants = grants.lock().clone();
    grants.sort_unstable_by_key(|grant| grant.token);
    for process in 0..2 {
        let own = || grants.iter().filter(|grant| grant.process == process);
        let rows = grants.chunk_by(|a, b| a.process == b.process);
        let row = rows.filter(|row| row[0].process == process).map(<[_]>::len).max();
        let longest = own().map(|grant| grant.waited).max().unwrap_or_default();
        println!(
            "process {process}: {} grants, at most {} in a row, waited at most {longest:.1?}",
            own().count(),
            row.unwrap_or(0)
        );
    }
    Ok(())
}
