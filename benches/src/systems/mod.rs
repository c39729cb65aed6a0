//! The systems on top of the engine, each compared with a peer.
//!
//! Requests, events, locks and the gateway. A shop uses most of them.

pub mod events;
pub mod gateway;
pub mod gateway_clients;
pub mod locking;
pub mod shop;
mod spawned;
pub mod submissions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use txn_core::{Config, Domain};
use txn_es::{EsConfig, EsStore};

use crate::pair::Rate;
use crate::statistics::Times;
use crate::{Failure, drop_all};

/// The maximum duration of operations that are not measured.
const PATIENCE: Duration = Duration::from_secs(60);

/// A domain of a system, as one process opened it.
#[derive(Debug)]
struct Place {
    domain: Domain,
    store: Arc<EsStore>,
}

impl Place {
    async fn open(url: &str, name: &str) -> Result<Self, Failure> {
        let store = Arc::new(EsStore::connect(EsConfig::from_url(url)?).await?);
        let config = Config::default().with_janitor_interval(None);
        let domain = Domain::open_or_create(store.clone(), name, config).await?;
        Ok(Self { domain, store })
    }

    async fn leave(&self) {
        self.domain.shutdown(PATIENCE).await;
    }

    async fn close(&self) -> Result<(), Failure> {
        self.leave().await;
        drop_all(&*self.store, self.domain.name()).await
    }
}

/// Lets clients repeat an operation for a time.
///
/// Returns the results, and the start.
async fn in_turn<T, F, R>(
    clients: usize,
    span: Duration,
    turn: F,
) -> Result<(Vec<T>, Instant), Failure>
where
    T: Send + 'static,
    F: Fn(usize) -> R + Clone + Send + 'static,
    R: Future<Output = Result<T, Failure>> + Send,
{
    let began = Instant::now();
    let work = (0..clients).map(|client| {
        let turn = turn.clone();
        let one = async move {
            let mut done = Vec::new();
            while began.elapsed() < span {
                done.push(turn(client).await?);
            }
            Ok::<_, Failure>(done)
        };
        async { tokio::spawn(one).await? }
    });
    Ok((try_join_all(work).await?.into_iter().flatten().collect(), began))
}

/// Returns the rate since a time, with these durations.
fn rate_since(began: Instant, times: &[Duration]) -> Rate {
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    Rate { per_second, times: Times::of(times) }
}

fn new_id() -> String {
    format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..))
}
