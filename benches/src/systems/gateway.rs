//! The gateway beside the library and beside plain requests.
//!
//! The gateway runs in this process or in another one. Its clients send HTTP requests to it, from
//! this process or from others. All transfers are on the same accounts as those of the library.

use std::io::{self, BufRead as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use txn_core::{Config, Domain, Options};
use txn_es::EsStore;
use txn_serve::{ServeConfig, Server};

use super::gateway_clients::{Assignment, Clients, Requests, bulk_ids};
use super::spawned::Spawned;
use super::{in_turn, rate_since};
use crate::Failure;
use crate::accounts::index;
use crate::load::{Load, Picker};
use crate::pair::Rate;
use crate::setup::Setup;
use crate::world::{Way, World};

/// A gateway on the accounts of a world.
#[derive(Debug)]
pub struct Gateway {
    world: Arc<World>,
    /// The clients of this process.
    clients: Clients,
    url: String,
    index: String,
    host: Host,
}

/// The process of a gateway.
#[derive(Debug)]
enum Host {
    /// The process of the library, whose domain the gateway shares.
    Here { stop: oneshot::Sender<()>, served: JoinHandle<bool> },
    /// A process with nothing else, as `txn serve`.
    Apart(Spawned),
}

impl Host {
    /// Serves the gateway in this process. Returns its address.
    async fn here(domain: &Domain) -> Result<(String, Self), Failure> {
        let server = Server::new(domain, ServeConfig::default())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            server.serve(listener, stopped).await
        });
        Ok((url, Self::Here { stop, served }))
    }

    /// Starts a process for the gateway. Returns its address.
    fn apart(target: &str, domain: &str) -> Result<(String, Self), Failure> {
        let mut process = Spawned::start(&["--gateway", domain, "--target", target])?;
        Ok((process.line()?.trim().to_owned(), Self::Apart(process)))
    }
}

/// Serves the gateway of a domain in this process until the input ends. Prints its address.
///
/// # Errors
/// As the server.
pub async fn serve(target: &str, domain: &str) -> Result<(), Failure> {
    let store = EsStore::connect(Setup::new(target)?.transactions).await?;
    let domain = Domain::open(Arc::new(store), domain, Config::default()).await?;
    let server = Server::new(&domain, ServeConfig::default())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    let input = tokio::task::spawn_blocking(|| io::stdin().lock().read_line(&mut String::new()));
    let is_answered = server.serve(listener, async { drop(input.await) }).await;
    domain.shutdown(Duration::from_secs(10)).await;
    match is_answered {
        true => Ok(()),
        false => Err("the gateway left requests unanswered".into()),
    }
}

impl Gateway {
    /// Starts a gateway in this process, or in a process of its own.
    ///
    /// Creates accounts for transfers and documents for bulks.
    ///
    /// # Errors
    /// As the server.
    pub async fn start(
        world: &Arc<World>,
        accounts: usize,
        apart: bool,
    ) -> Result<Arc<Self>, Failure> {
        for way in [Way::Groups, Way::Retried] {
            world.prepare(way, accounts).await?;
        }
        world.plain().open(&bulk_ids(accounts)).await?;
        let domain = &world.bank().domain;
        let (url, host) = match apart {
            true => Host::apart(world.plain().url(), domain.name())?,
            false => Host::here(domain).await?,
        };
        let index = index(domain.name());
        let clients = Clients::new(&url, world.plain().clone(), &index)?;
        Ok(Arc::new(Self { world: world.clone(), clients, url, index, host }))
    }

    /// Stops the gateway.
    ///
    /// # Errors
    /// If requests still run.
    pub async fn stop(self: Arc<Self>) -> Result<(), Failure> {
        let this = Arc::into_inner(self).ok_or("clients of the gateway still run")?;
        let (stop, served) = match this.host {
            Host::Here { stop, served } => (stop, served),
            Host::Apart(process) => {
                return tokio::task::spawn_blocking(move || process.end()).await?;
            }
        };
        let _ = stop.send(());
        match served.await? {
            true => Ok(()),
            false => Err("the gateway left requests unanswered".into()),
        }
    }

    /// Sends requests for a time, with each client one after the other.
    ///
    /// Several processes of a load are processes of their own, which share only the gateway.
    ///
    /// # Errors
    /// As the requests; if transfers are lost.
    pub async fn round(
        self: &Arc<Self>,
        requests: Requests,
        load: Load,
        span: Duration,
    ) -> Result<Rate, Failure> {
        let (rate, sent) = match load.processes {
            1 => self.in_this_process(requests, load, span).await?,
            processes => {
                let assignment = self.assignment(requests, load, span);
                let run = move || assignment.in_processes(processes);
                tokio::task::spawn_blocking(run).await??
            }
        };
        let way = requests.way();
        self.world.acknowledged(way, requests.transferred(load), sent);
        let drift = self.world.audit(way).await?;
        // Plain clients lose updates, which other loads report.
        if !way.is_plain() {
            drift.none_after("a load of the gateway")?;
        }
        Ok(rate)
    }

    /// Sends requests from this process. Returns the rate and the number of requests.
    async fn in_this_process(
        self: &Arc<Self>,
        requests: Requests,
        load: Load,
        span: Duration,
    ) -> Result<(Rate, usize), Failure> {
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
        Ok((rate_since(began, &times), times.len()))
    }

    async fn send(&self, requests: Requests, picked: &[usize]) -> Result<(), Failure> {
        if requests != Requests::Library {
            return self.clients.send(requests, picked).await;
        }
        let ids: Vec<String> = picked.iter().map(|at| World::id(requests.way(), *at)).collect();
        self.world.transfer(requests.way(), 0, &ids, &Options::default()).await?;
        Ok(())
    }

    /// The work of each process of a load.
    fn assignment(&self, requests: Requests, load: Load, span: Duration) -> Assignment {
        let Load { accounts, documents, clients, processes, .. } = load;
        let (gateway, index) = (self.url.clone(), self.index.clone());
        let (server, clients) = (self.world.plain().url().to_owned(), clients / processes);
        Assignment { gateway, server, index, requests, clients, documents, accounts, span }
    }
}
