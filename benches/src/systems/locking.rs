//! Locks, compared with a plain lock document.
//!
//! A plain client reads the document, creates an absent one, and deletes it to release the lock.
//! Otherwise the client reads again a millisecond later. If the holder dies, the lock is held
//! forever, and nothing distinguishes a holder from one that was taken for dead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use txn_lock::{LockConfig, LockService};

use super::{PATIENCE, Place, in_turn, rate_since};
use crate::pair::Rate;
use crate::seed::wire::Wire;
use crate::{Failure, unique};

/// The pause of the peer between two reads.
const PAUSE: Duration = Duration::from_millis(1);

const PROCESSES: usize = 2;

/// Both systems on one server.
#[derive(Debug)]
pub struct Locking {
    /// Each process has its own connections, clocks and domain.
    processes: Vec<(Place, LockService)>,
    wires: Vec<Wire>,
    /// The collection of the peer.
    plain: String,
}

impl Locking {
    /// Opens both systems with two processes.
    ///
    /// # Errors
    /// As the server.
    pub async fn open(url: &str) -> Result<Arc<Self>, Failure> {
        let name = unique("locking");
        let (mut processes, mut wires) = (Vec::new(), Vec::new());
        for _ in 0..PROCESSES {
            let place = Place::open(url, &name).await?;
            let locks = LockService::open(&place.domain, LockConfig::default()).await?;
            processes.push((place, locks));
            wires.push(Wire::new(url, None)?);
        }
        let plain = format!("{name}-plain");
        let domain = &processes[0].0.domain;
        domain.create_collection::<txn_core::Raw>(&plain, Some(r#"{"dynamic":false}"#)).await?;
        Ok(Arc::new(Self { processes, wires, plain }))
    }

    /// Measures rounds of both systems in turn, as medians.
    ///
    /// Counts pairs of a lock and its release, and times until the lock was acquired. Clients of
    /// this many processes want one lock, or each its own.
    ///
    /// # Errors
    /// As the server; if two clients held the lock at the same time.
    pub async fn measure(
        self: &Arc<Self>,
        clients: usize,
        processes: usize,
        rounds: usize,
        span: Duration,
    ) -> Result<[Rate; 2], Failure> {
        let mut each: [Vec<Rate>; 2] = Default::default();
        for _ in 0..rounds {
            for (plain, rounds) in each.iter_mut().enumerate() {
                let (this, holds) = (self.clone(), Arc::new(tokio::sync::Mutex::new(())));
                let (times, began) = in_turn(clients, span, move |client| {
                    let (this, holds) = (this.clone(), holds.clone());
                    async move {
                        let process = client % processes;
                        let waited = Instant::now();
                        if plain == 1 {
                            this.lock_plain(process, client).await?;
                        }
                        let guard = match plain {
                            1 => None,
                            _ => Some(
                                this.processes[process].1.lock("bench", "one", PATIENCE).await?,
                            ),
                        };
                        let waited = waited.elapsed();
                        drop(holds.try_lock().map_err(|_| "two hold the lock")?);
                        match guard {
                            Some(guard) => guard.unlock().await?,
                            None => this.unlock_plain(process, client).await?,
                        }
                        Ok(waited)
                    }
                })
                .await?;
                rounds.push(rate_since(began, &times));
            }
        }
        Ok(each.map(|rounds| Rate::median(&rounds)))
    }

    async fn lock_plain(&self, process: usize, client: usize) -> Result<(), Failure> {
        let (wire, until) = (&self.wires[process], Instant::now() + PATIENCE);
        let (document, create) =
            (format!("{}/_doc/one", self.plain), format!("{}/_create/one", self.plain));
        while Instant::now() < until {
            if wire.ask(Method::GET, &document, None).await?.status == 404 {
                let body = json!({"owner": client});
                if wire.ask(Method::PUT, &create, Some(&body)).await?.status != 409 {
                    return Ok(());
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err("no client got the plain lock".into())
    }

    async fn unlock_plain(&self, process: usize, client: usize) -> Result<(), Failure> {
        let (wire, document) = (&self.wires[process], format!("{}/_doc/one", self.plain));
        let found = wire.ask(Method::GET, &document, None).await?;
        if found.body["_source"]["owner"] != json!(client) {
            return Err("the plain lock is another's".into());
        }
        wire.ask(Method::DELETE, &document, None).await.map(drop)
    }

    /// Drops all collections.
    ///
    /// # Errors
    /// As the server.
    pub async fn close(&self) -> Result<(), Failure> {
        for (place, locks) in self.processes.iter().rev() {
            locks.shutdown(PATIENCE).await;
            place.leave().await;
        }
        self.processes[0].0.close().await
    }
}
