//! The cost of labels and recorded waits: throughput with them, to that without.
//!
//! Rounds with and without them alternate, so that other work on the machine slows both alike. The
//! store is in memory, or a server. In each domain a janitor renews the entry of the process by one
//! write every 10 s.
//!
//! ```sh
//! cargo run --profile bench -p txn-benches --bin signals -- --target http://127.0.0.1:9200
//! ```

use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use txn_benches::Failure;
use txn_benches::statistics::{mean_with_error, percentile};
use txn_core::store::{MemoryStore, Store};
use txn_core::{Collection, Config, Domain, Error, Options, Raw};
use txn_es::{EsConfig, EsStore};

const CLIENTS: usize = 64;
const TRANSACTIONS: usize = 25;

#[derive(Debug, Parser)]
#[command(about = "Measures the cost of labels and recorded waits")]
struct Arguments {
    /// The address of a server. Without it the store is in memory.
    #[arg(long)]
    target: Option<String>,

    /// The number of rounds with labels and waits, and of rounds without them.
    #[arg(long, default_value_t = 60)]
    pairs: usize,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let Arguments { target, pairs } = Arguments::parse();
    let store: Arc<dyn Store> = match target {
        Some(url) => Arc::new(EsStore::connect(EsConfig::from_url(&url)?).await?),
        None => Arc::new(MemoryStore::new()),
    };
    for (what, documents) in [("10,000 documents", 10_000), ("10 documents", 10)] {
        let without = Config::default().with_contention_waits(0);
        let with = Config::default().with_write_contention(true);
        let label = Options::default().with_label("checkout");
        let without = Shop::open(&store, "without", without, Options::default(), documents).await?;
        let with = Shop::open(&store, "with", with, label, documents).await?;
        // The first rounds fill caches.
        without.round().await?;
        with.round().await?;
        let mut ratios = Vec::new();
        for pair in 0..pairs {
            let (one, two) = match pair % 2 {
                0 => (without.round().await?, with.round().await?),
                _ => {
                    let two = with.round().await?;
                    (without.round().await?, two)
                }
            };
            ratios.push(one / two);
        }
        ratios.sort_by(f64::total_cmp);
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| percentile(&ratios, share));
        // A ratio and its inverse count alike.
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let (mean, error) = mean_with_error(&logarithms);
        println!(
            "{what}: mean {:.3} ± {error:.3}, median {median:.3}, quartiles {low:.3} and {high:.3}",
            mean.exp(),
        );
        without.domain.admin().remove().await?;
        with.domain.admin().remove().await?;
    }
    Ok(())
}

struct Shop {
    domain: Domain,
    stock: Collection<Raw>,
    options: Options,
    documents: usize,
}

impl Shop {
    async fn open(
        store: &Arc<dyn Store>,
        kind: &str,
        config: Config,
        options: Options,
        documents: usize,
    ) -> Result<Self, Failure> {
        let name = format!("signals-{}-{documents}-{kind}", std::process::id());
        let domain = Domain::open_or_create(store.clone(), &name, config).await?;
        let stock = domain.create_collection(&format!("{name}-stock"), None).await?;
        Ok(Self { domain, stock, options, documents })
    }

    /// Runs all clients, and returns the seconds.
    async fn round(&self) -> Result<f64, Failure> {
        let began = Instant::now();
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
        Ok(began.elapsed().as_secs_f64())
    }
}
