//! Benchmarks beside plain, unsafe writes: the same documents, the same server, the same run.

pub mod seed;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use txn_core::event::{Event, Observer};
use txn_core::{Collection, Config, Domain, Error, Options, Typed};
use txn_es::{EsConfig, EsStore};
use txn_sim::{CountingStore, Counts};

/// Anything that stops a benchmark.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// In minor units.
    pub balance: i64,
}

/// Accounts on a server, for transactions and for plain requests.
pub struct Bench {
    /// The engine's domain.
    pub domain: Domain,
    /// Its accounts.
    pub accounts: Collection<Typed<Account>>,
    counting: Arc<CountingStore>,
    witness: Arc<Witness>,
    plain: reqwest::Client,
    url: String,
    index: String,
}

const MAPPINGS: &str = r#"{"properties":{"balance":{"type":"long"}}}"#;

impl Bench {
    /// Opens a domain of this name on the server and makes `accounts` accounts.
    ///
    /// # Errors
    /// As the server says.
    pub async fn open(url: &str, name: &str, accounts: usize) -> Result<Self, Failure> {
        Self::open_with(url, name, accounts, Config::default()).await
    }

    /// The same, with settings.
    ///
    /// # Errors
    /// As the server says.
    pub async fn open_with(
        url: &str,
        name: &str,
        accounts: usize,
        config: Config,
    ) -> Result<Self, Failure> {
        let bench = Self::connect(url, name, config).await?;
        for part in ids(accounts).chunks(500) {
            bench.put(part, &Options::default()).await?;
        }
        bench.settle().await?;
        Ok(bench)
    }

    /// Opens the domain of this name as another process does: on connections and clocks of its own.
    ///
    /// # Errors
    /// As the server says.
    pub async fn beside(url: &str, name: &str, config: Config) -> Result<Self, Failure> {
        Self::connect(url, name, config).await
    }

    async fn connect(url: &str, name: &str, config: Config) -> Result<Self, Failure> {
        let store = Arc::new(EsStore::connect(EsConfig::from_url(url)?).await?);
        let counting = Arc::new(CountingStore::new(store));
        let witness = Arc::new(Witness { counting: counting.clone(), at_commit: Mutex::default() });
        let config = config.with_janitor_interval(None).with_observer(Some(witness.clone()));
        let domain = Domain::create(counting.clone(), name, config).await?;
        let index = format!("{name}-accounts");
        let accounts = domain.create_collection(&index, Some(MAPPINGS)).await?;
        let plain =
            reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { domain, accounts, counting, witness, plain, url, index })
    }

    /// Writes accounts without reading them.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn put(&self, ids: &[String], options: &Options) -> Result<(), Error> {
        let tx = self.domain.begin(options)?;
        for id in ids {
            tx.put(&self.accounts, id.as_str(), &Account { balance: 1_000 })?;
        }
        tx.commit().await.map(|_| ())
    }

    /// Moves one unit in a circle through the accounts, in one transaction.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn transfer(&self, ids: &[String], options: &Options) -> Result<(), Error> {
        let tx = self.domain.begin(options)?;
        let read = tx.get_many(&self.accounts, ids.iter().map(String::as_str)).await?;
        for (n, (id, account)) in ids.iter().zip(read).enumerate() {
            let balance = account.map_or(0, |account| account.balance) + delta(n);
            tx.put(&self.accounts, id.as_str(), &Account { balance })?;
        }
        tx.commit().await.map(|_| ())
    }

    /// The same in a closure, again as often as others are in the way. Returns how many attempts it took.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn transact(&self, ids: &[String]) -> Result<u32, Error> {
        let committed = self
            .domain
            .run(&Options::default(), async |tx| {
                let read = tx.get_many(&self.accounts, ids.iter().map(String::as_str)).await?;
                for (n, (id, account)) in ids.iter().zip(read).enumerate() {
                    let balance = account.map_or(0, |account| account.balance) + delta(n);
                    tx.put(&self.accounts, id.as_str(), &Account { balance })?;
                }
                Ok::<_, Error>(())
            })
            .await?;
        Ok(committed.receipt.attempts)
    }

    /// What stands in accounts together.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn sum(&self, ids: &[String]) -> Result<i64, Error> {
        let mut sum = 0;
        for ids in ids.chunks(500) {
            let keys = ids.iter().map(String::as_str);
            let read = self.domain.reader().get_many(&self.accounts, keys).await?;
            sum += read.into_iter().flatten().map(|account| account.balance).sum::<i64>();
        }
        Ok(sum)
    }

    /// The same documents by `_mget` and `_bulk`: nothing is atomic, nothing is isolated.
    ///
    /// # Errors
    /// As the server says.
    pub async fn plain_transfer(&self, ids: &[String]) -> Result<(), Failure> {
        let body = serde_json::json!({ "ids": ids });
        let read: Answer = self.post(&format!("{}/_mget", self.index), body.to_string()).await?;
        let mut bulk = String::new();
        for (n, doc) in read.docs.into_iter().enumerate() {
            let balance = doc.source.map_or(0, |account| account.balance) + delta(n);
            bulk.push_str(&format!("{{\"index\":{{\"_id\":\"{}\"}}}}\n", doc.id));
            bulk.push_str(&serde_json::to_string(&Account { balance })?);
            bulk.push('\n');
        }
        let written: Written = self.post(&format!("{}/_bulk", self.index), bulk).await?;
        if written.errors { Err("an item of the plain bulk failed".into()) } else { Ok(()) }
    }

    /// The same on the versions that were read, as careful clients do: whoever meets a conflict writes nothing more and starts
    /// again. What was written before the conflict stays, so that money may be lost. Returns how many tries it took.
    ///
    /// # Errors
    /// As the server says.
    pub async fn retried_transfer(&self, ids: &[String]) -> Result<u32, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let body = serde_json::json!({ "ids": ids });
            let read: Answer =
                self.post(&format!("{}/_mget", self.index), body.to_string()).await?;
            let mut bulk = String::new();
            for (n, doc) in read.docs.into_iter().enumerate() {
                let balance = doc.source.map_or(0, |account| account.balance) + delta(n);
                let (seq_no, term) = (doc.seq_no.unwrap_or(0), doc.term.unwrap_or(1));
                bulk.push_str(&format!(
                    "{{\"index\":{{\"_id\":\"{}\",\"if_seq_no\":{seq_no},\"if_primary_term\":{term}}}}}\n",
                    doc.id
                ));
                bulk.push_str(&serde_json::to_string(&Account { balance })?);
                bulk.push('\n');
            }
            let written: Written = self.post(&format!("{}/_bulk", self.index), bulk).await?;
            if !written.errors {
                return Ok(tries);
            }
        }
    }

    async fn post<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: String,
    ) -> Result<T, Failure> {
        let request = self.plain.post(format!("{}/{path}", self.url));
        let request = request.header("content-type", "application/json").body(body);
        let answer = request.send().await?.error_for_status()?.bytes().await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Waits until everything that was committed is applied.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn settle(&self) -> Result<(), Failure> {
        for _ in 0..200 {
            if self.domain.inspect().await?.is_clean() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("transactions are left over".into())
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counting.counts()
    }

    /// What had been asked of the store when the last commit was acknowledged.
    #[must_use]
    pub fn counts_at_commit(&self) -> Option<Counts> {
        self.witness.at_commit.lock().ok().and_then(|mut counts| counts.take())
    }

    /// Ends, and leaves to others what the benchmark made.
    pub async fn leave(&self) {
        self.domain.shutdown(Duration::from_secs(10)).await;
    }

    /// Drops what the benchmark made.
    ///
    /// # Errors
    /// As the server says.
    pub async fn close(self) -> Result<(), Failure> {
        use txn_core::store::Store;
        self.leave().await;
        self.counting.drop_collection(&self.index).await?;
        Ok(())
    }
}

/// Notes the counts at the commit point, before the apply goes on.
#[derive(Debug)]
struct Witness {
    counting: Arc<CountingStore>,
    at_commit: Mutex<Option<Counts>>,
}

impl Observer for Witness {
    fn on_event(&self, event: &Event) {
        if let (Event::Committed { .. }, Ok(mut counts)) = (event, self.at_commit.lock()) {
            *counts = Some(self.counting.counts());
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    docs: Vec<Doc>,
}

#[derive(Deserialize)]
struct Doc {
    #[serde(rename = "_id")]
    id: String,
    #[serde(rename = "_source")]
    source: Option<Account>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    term: Option<u64>,
}

#[derive(Deserialize)]
struct Written {
    errors: bool,
}

/// The ids of the first `n` accounts.
#[must_use]
pub fn ids(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("account-{n:04}")).collect()
}

/// A name that no other run uses.
#[must_use]
pub fn unique(prefix: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("{prefix}-{:x}", now.unwrap_or_default().as_micros())
}

/// What a transfer between so many accounts adds to all of them together.
#[must_use]
pub fn added(documents: usize) -> i64 {
    (0..documents).map(delta).sum()
}

fn delta(n: usize) -> i64 {
    if n.is_multiple_of(2) { 1 } else { -1 }
}
