//! The cost of labels and of the recorded waits, in memory.
//!
//! Rounds with and without the signals alternate in one process. The figure is the time on the
//! processor, which other programs of the machine hardly change. Both kinds of rounds have a
//! janitor, which renews the entry of the process by one write every 10 s. Linux only.
//!
//! ```sh
//! cargo run --release -p txn-core --example signals_cost
//! ```

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::MemoryStore;
use txn_core::{Collection, Config, Domain, Error, Options, Raw};

/// Pairs of rounds on the same two domains. New domains follow before their janitors have work.
const PAIRS: usize = 25;
const DOMAINS: usize = 4;
const CLIENTS: usize = 8;
const TRANSACTIONS: usize = 250;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Few documents for the same clients, so that transactions wait for locks.
    for (what, documents) in [("rare waits", 1_024), ("many waits", 8)] {
        let mut costs = Vec::new();
        for _ in 0..DOMAINS {
            costs.extend(pairs(documents).await?);
        }
        costs.sort_by(f64::total_cmp);
        let [low, median, high] =
            [costs.len() / 4, costs.len() / 2, costs.len() * 3 / 4].map(|at| costs[at]);
        println!("{what}: median {median:+.1} % ({low:+.1} % to {high:+.1} %)");
    }
    Ok(())
}

/// Returns the additional time of each pair of rounds, in percent.
async fn pairs(documents: usize) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let without = Config::default().with_contention_waits(0);
    let with = Config::default().with_write_contention(true);
    let without = Shop::open("without", without, Options::default(), documents).await?;
    let with =
        Shop::open("with", with, Options::default().with_label("checkout"), documents).await?;
    // The first rounds fill caches.
    without.round().await?;
    with.round().await?;
    let mut costs = Vec::new();
    for pair in 0..PAIRS {
        let (one, two) = match pair % 2 {
            0 => (without.round().await?, with.round().await?),
            _ => {
                let two = with.round().await?;
                (without.round().await?, two)
            }
        };
        costs.push(100.0 * (two / one - 1.0));
    }
    without.domain.shutdown(Duration::from_secs(5)).await;
    with.domain.shutdown(Duration::from_secs(5)).await;
    Ok(costs)
}

struct Shop {
    domain: Domain,
    stock: Collection<Raw>,
    options: Options,
    documents: usize,
}

impl Shop {
    async fn open(
        name: &str,
        config: Config,
        options: Options,
        documents: usize,
    ) -> Result<Self, Error> {
        let domain = Domain::open_or_create(Arc::new(MemoryStore::new()), name, config).await?;
        let stock = domain.create_collection("stock", None).await?;
        Ok(Self { domain, stock, options, documents })
    }

    /// Returns the milliseconds on the processor.
    async fn round(&self) -> Result<f64, Box<dyn std::error::Error>> {
        let began = on_the_processor()?;
        let clients = (0..CLIENTS).map(|client| async move {
            for n in 0..TRANSACTIONS {
                let at = |step: usize| format!("{}", (client * 131 + n * step) % self.documents);
                let (a, b) = (at(7), at(13));
                let write = self.domain.run::<_, Error, _>(&self.options, async |tx| {
                    tx.prefetch([self.stock.key(&*a), self.stock.key(&*b)]).await?;
                    tx.put(&self.stock, &*a, &Raw::new(r#"{"left":1}"#))?;
                    tx.put(&self.stock, &*b, &Raw::new(r#"{"left":2}"#))
                });
                write.await?;
            }
            Ok::<_, Error>(())
        });
        for client in futures::future::join_all(clients).await {
            client?;
        }
        Ok((on_the_processor()? - began) / 1e6)
    }
}

/// The nanoseconds of this thread on the processor.
fn on_the_processor() -> Result<f64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}
