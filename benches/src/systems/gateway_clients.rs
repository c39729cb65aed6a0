//! HTTP clients of the gateway and of the server, in this process or in others.

use std::io::{self, BufRead as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::in_turn;
use super::spawned::Spawned;
use crate::Failure;
use crate::accounts::{Account, delta};
use crate::load::{Load, Picker};
use crate::pair::Rate;
use crate::plain::Plain;
use crate::setup::Setup;
use crate::statistics::Times;
use crate::world::{Way, World};

/// The requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl Requests {
    /// The accounts of the transfers.
    pub(super) fn way(self) -> Way {
        match self {
            Self::Plain | Self::PlainBulk => Way::Retried,
            _ => Way::Groups,
        }
    }

    /// The number of accounts that one request changes.
    pub(super) fn transferred(self, load: Load) -> usize {
        match self {
            Self::AtomicBulk | Self::PlainBulk => 0,
            _ => load.documents,
        }
    }
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

/// The connections of clients to the gateway and to the server.
#[derive(Debug)]
pub(super) struct Clients {
    through: Plain,
    server: Plain,
    index: String,
}

impl Clients {
    pub(super) fn new(gateway: &str, server: Plain, index: &str) -> Result<Self, Failure> {
        let through = Plain::new(&Setup::new(gateway)?, index);
        Ok(Self { through, server, index: index.to_owned() })
    }

    /// Sends one request of a client.
    pub(super) async fn send(&self, requests: Requests, picked: &[usize]) -> Result<(), Failure> {
        let ids: Vec<String> = picked.iter().map(|at| World::id(requests.way(), *at)).collect();
        let bulk = |of| picked.iter().map(|at| bulk_id(of, *at)).collect::<Vec<_>>();
        match requests {
            Requests::Library => Err("the library sends no HTTP requests".into()),
            Requests::Operations => self.transfer(&ids).await,
            Requests::Closures => self.compute(&ids).await,
            Requests::Plain => self.server.retried_transfer(&ids).await.map(drop),
            Requests::AtomicBulk => self.through.open(&bulk(BULKS[0])).await,
            Requests::PlainBulk => self.server.open(&bulk(BULKS[1])).await,
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
        let targets: Vec<Value> = ids.iter().map(|id| target(&self.index, id)).collect();
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

/// Returns the ids of all documents of bulks.
pub(super) fn bulk_ids(accounts: usize) -> Vec<String> {
    (0..accounts).flat_map(|at| BULKS.map(|of| bulk_id(of, at))).collect()
}

fn bulk_id(of: &str, at: usize) -> String {
    format!("{of}-bulk-{at:05}")
}

/// The work of a client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    pub(super) gateway: String,
    pub(super) server: String,
    pub(super) index: String,
    pub(super) requests: Requests,
    pub(super) clients: usize,
    pub(super) documents: usize,
    pub(super) accounts: usize,
    pub(super) span: Duration,
}

/// The work that a client process has done.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    times: Vec<Duration>,
    took: Duration,
}

impl Assignment {
    /// Carries out the work in this process, after a line of the input.
    ///
    /// # Errors
    /// As the requests.
    pub async fn carry_out(self) -> Result<(), Failure> {
        let Self { gateway, server, index, requests, clients, documents, accounts, span } = self;
        let server = Plain::new(&Setup::new(&server)?, &index);
        let connected = Arc::new(Clients::new(&gateway, server, &index)?);
        let picker = Picker::new(Load::new(clients, documents, accounts));
        println!();
        io::stdin().lock().read_line(&mut String::new())?;
        let turn = move |_| {
            let (connected, picked) = (connected.clone(), picker.pick(&mut fastrand::Rng::new()));
            async move {
                let began = Instant::now();
                connected.send(requests, &picked).await?;
                Ok(began.elapsed())
            }
        };
        let (times, began) = in_turn(clients, span, turn).await?;
        println!("{}", serde_json::to_string(&Done { times, took: began.elapsed() })?);
        Ok(())
    }

    /// Lets several processes of this program do the work at the same time.
    ///
    /// Returns the rate and the number of requests. Blocks until the processes have ended.
    pub(super) fn in_processes(&self, processes: usize) -> Result<(Rate, usize), Failure> {
        let assignment = serde_json::to_string(self)?;
        let mut started = Vec::new();
        for _ in 0..processes {
            started.push(Spawned::start(&["--clients", &assignment, "--target", &self.server])?);
        }
        for process in &mut started {
            process.line()?;
        }
        for process in &mut started {
            process.send_line()?;
        }
        let (mut times, mut took) = (Vec::new(), Duration::ZERO);
        for process in &mut started {
            let done: Done = serde_json::from_str(&process.line()?)?;
            times.extend(done.times);
            took = took.max(done.took);
        }
        let per_second = times.len() as f64 / took.as_secs_f64();
        Ok((Rate { per_second, times: Times::of(&times) }, times.len()))
    }
}
