//! The gateway beside the library and beside plain requests.
//!
//! The gateway runs in this process, and its clients send HTTP requests to it. All transfers are on
//! the same accounts as those of the library.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use txn_core::Options;
use txn_serve::{ServeConfig, Server};

use super::{in_turn, rate_since};
use crate::Failure;
use crate::accounts::{Account, delta, index};
use crate::load::{Load, Picker};
use crate::pair::Rate;
use crate::plain::Plain;
use crate::setup::Setup;
use crate::world::{Way, World};

/// The requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Transfers by the library, in one process.
    Library,
    /// Transfers as operations in one request, through the gateway.
    Operations,
    /// Transfers that clients compute: a read for update, and a commit.
    Closures,
    /// Transfers on the read versions, without the gateway, again after conflicts.
    Plain,
    /// Bulks through the gateway, all or nothing.
    AtomicBulk,
    /// Bulks of the server.
    PlainBulk,
}

/// A gateway on the accounts of a world.
#[derive(Debug)]
pub struct Gateway {
    world: Arc<World>,
    /// Plain requests that go through the gateway.
    through: Plain,
    index: String,
    stop: oneshot::Sender<()>,
    served: JoinHandle<bool>,
}

/// The answer of a read for update.
#[derive(Deserialize)]
struct Read {
    documents: Vec<Document>,
    reservation: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    target: Value,
    token: String,
    document: Account,
}

impl Gateway {
    /// Starts a gateway, and creates accounts for transfers and documents for bulks.
    ///
    /// # Errors
    /// As the server.
    pub async fn start(world: &Arc<World>, accounts: usize) -> Result<Arc<Self>, Failure> {
        for way in [Way::Groups, Way::Retried] {
            world.prepare(way, accounts).await?;
        }
        let ids: Vec<String> =
            (0..accounts).flat_map(|at| BULKS.map(|of| bulk_id(of, at))).collect();
        world.plain().open(&ids).await?;
        let domain = &world.bank().domain;
        let server = Server::new(domain, ServeConfig::default())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            server.serve(listener, stopped).await
        });
        let index = index(domain.name());
        let through = Plain::new(&Setup::new(&url)?, &index);
        Ok(Arc::new(Self { world: world.clone(), through, index, stop, served }))
    }

    /// Stops the gateway.
    ///
    /// # Errors
    /// If requests still run.
    pub async fn stop(self: Arc<Self>) -> Result<(), Failure> {
        let this = Arc::into_inner(self).ok_or("clients of the gateway still run")?;
        let _ = this.stop.send(());
        match this.served.await? {
            true => Ok(()),
            false => Err("the gateway left requests unanswered".into()),
        }
    }

    /// Sends requests for a time, with each client one after the other.
    ///
    /// # Errors
    /// As the requests; if transfers are lost.
    pub async fn round(
        self: &Arc<Self>,
        requests: Requests,
        load: Load,
        span: Duration,
    ) -> Result<Rate, Failure> {
        let (this, picker) = (self.clone(), Picker::new(load));
        let turn = move |_| {
            let (this, picked) = (this.clone(), picker.pick(&mut fastrand::Rng::new()));
            async move {
                let began = Instant::now();
                this.send(requests, &picked).await?;
                Ok(began.elapsed())
            }
        };
        let (times, began) = in_turn(load.clients, span, turn).await?;
        let rate = rate_since(began, &times);
        let way = requests.way();
        self.world.acknowledged(way, requests.transferred(load), times.len());
        let drift = self.world.audit(way).await?;
        // Plain clients lose updates, which other loads report.
        if !way.is_plain() {
            drift.none_after("a load of the gateway")?;
        }
        Ok(rate)
    }

    async fn send(&self, requests: Requests, picked: &[usize]) -> Result<(), Failure> {
        let ids: Vec<String> = picked.iter().map(|at| World::id(requests.way(), *at)).collect();
        let bulk = |of| picked.iter().map(|at| bulk_id(of, *at)).collect::<Vec<_>>();
        match requests {
            Requests::Library | Requests::Plain => {
                self.world.transfer(requests.way(), 0, &ids, &Options::default()).await?;
                Ok(())
            }
            Requests::Operations => self.transfer(&ids).await,
            Requests::Closures => self.compute(&ids).await,
            Requests::AtomicBulk => self.through.open(&bulk(BULKS[0])).await,
            Requests::PlainBulk => self.world.plain().open(&bulk(BULKS[1])).await,
        }
    }

    /// Moves one unit in a circle, by operations.
    async fn transfer(&self, ids: &[String]) -> Result<(), Failure> {
        self.post("/_txn", &operations(&self.index, ids)).await?.error_for_status()?;
        Ok(())
    }

    /// Moves one unit in a circle until a commit succeeds.
    ///
    /// Each try has a read for update and a commit.
    async fn compute(&self, ids: &[String]) -> Result<(), Failure> {
        let targets: Vec<Value> = ids.iter().map(|id| self.target(id)).collect();
        let read = json!({"targets": targets, "for_update": true});
        loop {
            let answer = self.post("/_txn/read", &read).await?.error_for_status()?;
            let Read { documents, reservation } = serde_json::from_slice(&answer.bytes().await?)?;
            let (mut reads, mut operations) = (Vec::new(), Vec::new());
            for (place, Document { target, token, document }) in documents.into_iter().enumerate() {
                let moved = document.moved(delta(place));
                operations.push(json!({"put": {"target": target, "document": moved}}));
                reads.push(json!({"target": target, "token": token}));
            }
            let reservations: Vec<String> = reservation.into_iter().collect();
            let commit =
                json!({"reads": reads, "operations": operations, "reservations": reservations});
            let answer = self.post("/_txn/commit", &commit).await?;
            if answer.status() != reqwest::StatusCode::CONFLICT {
                answer.error_for_status()?;
                return Ok(());
            }
        }
    }

    fn target(&self, id: &str) -> Value {
        target(&self.index, id)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<reqwest::Response, Failure> {
        let request = self.through.client().post(format!("{}{path}", self.through.url()));
        let request = request.header("content-type", "application/json").body(body.to_string());
        Ok(request.send().await?)
    }
}

fn target(index: &str, id: &str) -> Value {
    json!({"collection": index, "id": id})
}

/// Returns the request that moves one unit in a circle.
#[must_use]
pub fn operations(index: &str, ids: &[String]) -> Value {
    let add = |id: &String, path: &str, amount: i64| json!({"add": {"target": target(index, id), "path": path, "amount": amount}});
    let operations = ids
        .iter()
        .enumerate()
        .flat_map(|(place, id)| [add(id, "/balance", delta(place)), add(id, "/changes", 1)]);
    json!({ "operations": operations.collect::<Vec<_>>() })
}

/// The beginnings of bulk ids, through the gateway and without it.
const BULKS: [&str; 2] = ["gateway", "server"];

fn bulk_id(of: &str, at: usize) -> String {
    format!("{of}-bulk-{at:05}")
}

impl Requests {
    /// The accounts of the transfers.
    fn way(self) -> Way {
        match self {
            Self::Plain | Self::PlainBulk => Way::Retried,
            _ => Way::Groups,
        }
    }

    /// The number of accounts that one request changes.
    fn transferred(self, load: Load) -> usize {
        match self {
            Self::AtomicBulk | Self::PlainBulk => 0,
            _ => load.documents,
        }
    }
}
