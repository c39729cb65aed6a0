//! The project's original two-phase commit, compared with the bank.
//!
//! Both carry out the same transfers between two accounts, in turn. Each transfer is stored as a
//! document.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde::Serialize;
use txn_bank::{Bank, Leg, NewAccount};
use txn_core::Config;
use txn_es::{EsConfig, EsStore};

use crate::seed::{Ended, Peer, Transfer, Way};
use crate::statistics::{Times, median};
use crate::{Failure, drop_all, unique};

/// Large enough that no transfer is refused.
const BALANCE: i64 = 1 << 40;

/// Both systems on one server.
#[derive(Debug)]
pub struct Pair {
    peer: Peer,
    bank: Bank,
    store: Arc<EsStore>,
    name: String,
    accounts: Vec<String>,
}

/// The result of the rounds of one system.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rate {
    /// Transfers per second, until every transfer is finished.
    pub per_second: f64,
    /// The times of one transfer.
    ///
    /// The peer's time ends when the transfer is finished, and the bank's when it is acknowledged.
    pub times: Times,
}

impl Pair {
    /// Opens both systems, with accounts of their own.
    ///
    /// # Errors
    /// As the server.
    pub async fn open(
        url: &str,
        way: Way,
        accounts: usize,
        config: Config,
    ) -> Result<Arc<Self>, Failure> {
        let name = unique("seed");
        let accounts: Vec<String> = (0..accounts).map(|at| format!("a{at}")).collect();
        let peer = Peer::new(url, &name, way, None)?;
        peer.create(&accounts, BALANCE).await?;
        let store = Arc::new(EsStore::connect(EsConfig::from_url(url)?).await?);
        let bank = Bank::create(store.clone(), &name, config).await?;
        let new = accounts.iter().map(|name| NewAccount::new(name, name, BALANCE, "EUR"));
        let new = new.collect::<Result<Vec<_>, _>>()?;
        for new in new.chunks(100) {
            bank.ensure_accounts(new).await?;
        }
        bank.domain().barrier(Duration::from_secs(60)).await?.into_result()?;
        Ok(Arc::new(Self { peer, bank, store, name, accounts }))
    }

    /// Measures rounds of both systems in turn, as medians.
    ///
    /// # Errors
    /// As the server.
    pub async fn measure(
        self: &Arc<Self>,
        clients: usize,
        rounds: usize,
        span: Duration,
    ) -> Result<[Rate; 2], Failure> {
        let (mut peer, mut bank) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            peer.push(self.round(clients, span, true).await?);
            bank.push(self.round(clients, span, false).await?);
        }
        Ok([Rate::median(&peer), Rate::median(&bank)])
    }

    /// Checks the total money of both systems, and drops them.
    ///
    /// # Errors
    /// If the money has changed, or as the server.
    pub async fn close(&self) -> Result<(), Failure> {
        let whole = BALANCE * i64::try_from(self.accounts.len())?;
        let mut sum = 0;
        for account in &self.accounts {
            sum += self.peer.account(account).await?.balance;
        }
        let found = self.bank.accounts(&self.accounts).await?;
        let held: i64 = found.iter().map(|account| account.balance).sum();
        self.peer.remove().await?;
        self.bank.shutdown(Duration::from_secs(60)).await;
        drop_all(&*self.store, &self.name).await?;
        match (sum, held) == (whole, whole) {
            true => Ok(()),
            false => Err(format!("the peer holds {sum}, the bank {held}, not {whole}").into()),
        }
    }

    async fn transfer(&self, by_peer: bool) -> Result<(), Failure> {
        let many = self.accounts.len();
        let from = fastrand::usize(0..many);
        let to = (from + fastrand::usize(1..many)) % many;
        let (from, to) = (self.accounts[from].clone(), self.accounts[to].clone());
        if !by_peer {
            self.bank.transfer(None, &[Leg::new(from, -1), Leg::new(to, 1)]).await?;
            return Ok(());
        }
        let transfer = Transfer { id: self.bank.new_key(), from, to, amount: 1 };
        match self.peer.transfer(&transfer).await? {
            Ended::Finished => Ok(()),
            ended => Err(format!("a transfer of the peer ended as {ended:?}").into()),
        }
    }

    async fn round(
        self: &Arc<Self>,
        clients: usize,
        span: Duration,
        by_peer: bool,
    ) -> Result<Rate, Failure> {
        let (began, mut work) = (Instant::now(), Vec::new());
        for _ in 0..clients {
            let pair = self.clone();
            work.push(async move {
                let mut times = Vec::new();
                while began.elapsed() < span {
                    let at = Instant::now();
                    pair.transfer(by_peer).await?;
                    times.push(at.elapsed());
                }
                Ok::<_, Failure>(times)
            });
        }
        let work = work.into_iter().map(|one| async { tokio::spawn(one).await? });
        let times: Vec<Duration> = try_join_all(work).await?.into_iter().flatten().collect();
        if !by_peer {
            // Wait until everything is applied, which corresponds to the peer's finished state.
            self.bank.domain().barrier(Duration::from_secs(60)).await?.into_result()?;
        }
        let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
        Ok(Rate { per_second, times: Times::of(&times) })
    }
}

impl Rate {
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let times: Vec<Times> = rounds.iter().map(|rate| rate.times).collect();
        let per_second = median(rounds.iter().map(|rate| rate.per_second));
        Self { per_second, times: Times::median(&times) }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Times { p50, p99, .. } = self.times;
        f.pad(&format!("{:.0} ({p50:.1}, {p99:.1})", self.per_second))
    }
}
