//! Measures events per second, and the lag of handlers.
//!
//! Usage: `cargo run --release -p txn-outbox --example rate -- [memory|FILE|URL] [seconds] [keys]`.
//!
//! Clients emit, each event in a transaction with another document. A processor handles each event
//! in a transaction with another document.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use txn_core::store::{MemoryStore, Store};
use txn_core::{Config, Domain, Raw};
use txn_outbox::{Delivery, Failure, Outbox, OutboxConfig, OutboxError, ProcessorConfig, Topics};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The number of concurrent clients.
const CLIENTS: usize = 8;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().unwrap_or_else(|| "memory".to_owned());
    let seconds: u64 = arguments.next().map_or(Ok(5), |seconds| seconds.parse())?;
    let keys: u64 = arguments.next().map_or(Ok(1_000), |keys| keys.parse())?;
    let store: Arc<dyn Store> = match place.as_str() {
        "memory" => Arc::new(MemoryStore::new()),
        url if url.starts_with("http") => {
            Arc::new(txn_es::EsStore::connect(txn_es::EsConfig::from_url(url)?).await?)
        }
        file => Arc::new(txn_redb::RedbStore::open(file)?),
    };
    let domain =
        Domain::open_or_create(store, &txn_fixtures::unique("rate"), Config::default()).await?;
    let orders =
        domain.create_collection::<Raw>(&format!("{}-orders", domain.name()), None).await?;
    let derived =
        domain.create_collection::<Raw>(&format!("{}-derived", domain.name()), None).await?;
    let outbox = Outbox::open(&domain, OutboxConfig::default()).await?;
    let handler = move |delivery: Delivery| {
        let derived = derived.clone();
        async move {
            let id = delivery.event().queue.key().to_owned();
            delivery
                .transact::<_, Failure, _>(async |tx| Ok(tx.put(&derived, &id, &Raw::new("{}"))?))
                .await
        }
    };
    let config = ProcessorConfig::default().with_concurrency(32);
    let processor = outbox.start(config, Topics::new().with("orders", handler)).await?;
    while processor.shards().len() < usize::from(OutboxConfig::default().shards) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (stop, emitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (domain, outbox, orders) = (domain.clone(), outbox.clone(), orders.clone());
        let (stop, emitted) = (stop.clone(), emitted.clone());
        clients.spawn(async move {
            let mut at = client as u64;
            while !stop.load(Ordering::Relaxed) {
                let (id, key) = (format!("order-{at}"), format!("key-{}", at % keys));
                domain
                    .transact::<_, OutboxError, _>(async |tx| {
                        tx.put(&orders, &id, &Raw::new("{}"))?;
                        outbox.emit(tx, "orders", &key, &at).await
                    })
                    .await?;
                emitted.fetch_add(1, Ordering::Relaxed);
                at += CLIENTS as u64;
            }
            Ok::<_, OutboxError>(())
        });
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client??;
    }
    let emitting = began.elapsed();
    let emitted = emitted.load(Ordering::Relaxed);
    while processor.figures().handled < emitted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let handling = began.elapsed();
    let figures = processor.figures();
    let per_second = |count: u64, time: Duration| count as f64 / time.as_secs_f64();
    println!("emitted: {emitted}, {:.0} per second", per_second(emitted, emitting));
    println!(
        "handled: {}, {:.0} per second",
        figures.handled,
        per_second(figures.handled, handling)
    );
    println!(
        "behind: {:.1} ms on average, {} ms at most",
        figures.mean_lag_ms, figures.longest_lag_ms
    );
    processor.stop(Duration::from_secs(10)).await;
    domain.shutdown(Duration::from_secs(10)).await;
    Ok(())
}
