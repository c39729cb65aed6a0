//! The project's original two-phase commit, as a peer to compare with.
//!
//! A transaction is a document with a state. Each account notes the transactions that have changed
//! it and are not cleaned up. A transfer is eight sequential writes: create, pending, debit,
//! credit, committed, both marks off, finished. The recovery finds an interrupted transfer by its
//! state and its age. Before `committed` the recovery rolls the transfer back, and afterwards it
//! completes the transfer.
//!
//! The peer keeps the faults of the design. Readers see the state between debit and credit. A
//! recovery that takes a paused process for dead creates or loses money (`benches/tests/seed.rs`
//! shows this).

mod account;
pub(crate) mod wire;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Method;
use serde_json::{Value, json};

pub use account::Marked;
pub use wire::{Fuse, Killed};

use crate::Failure;
use account::{Change, SCRIPTS};
use wire::{Answer, Wire};

/// The number of tries of a write that conflicts.
const TRIES: usize = 1_000;

/// The number of transactions that one search of the recovery returns.
const BATCH: usize = 100;

/// The way to change a document atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By stored scripts, one request each.
    Scripts,
    /// By merges on the version that was read.
    ///
    /// An unknown version costs a further request.
    Conditions,
}

/// A transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The id, chosen by the application.
    pub id: String,
    /// The account that gives.
    pub from: String,
    /// The account that receives.
    pub to: String,
    /// The amount, in minor units.
    pub amount: i64,
}

/// The end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The transfer happened.
    Finished,
    /// The transfer did not happen.
    RolledBack,
    /// Another process works, or has worked, on the transfer.
    Elsewhere,
}

/// A callback at which a process may be paused.
pub type Pause<'a> = &'a (dyn Fn(&str) -> futures::future::BoxFuture<'static, ()> + Send + Sync);

/// One process of the peer.
#[derive(Debug)]
pub struct Peer {
    wire: Wire,
    way: Way,
    name: String,
}

impl Peer {
    /// Creates a process. `name` is the bank; with a fuse the process dies at some request.
    ///
    /// # Errors
    /// No client can be created.
    pub fn new(url: &str, name: &str, way: Way, fuse: Option<Fuse>) -> Result<Self, Failure> {
        Ok(Self { wire: Wire::new(url, fuse)?, way, name: name.to_owned() })
    }

    /// Creates the two indices, the necessary scripts, and accounts with a balance.
    ///
    /// # Errors
    /// As the server.
    pub async fn create(&self, accounts: &[String], balance: i64) -> Result<(), Failure> {
        let keyword = json!({"type": "keyword"});
        let accounts_mapping =
            json!({"balance": {"type": "long"}, "pending_transactions": keyword});
        let transactions = json!({
            "amount": {"type": "long"}, "src_acct": keyword, "dest_acct": keyword,
            "transaction_state": keyword, "creation_time": {"type": "date"}, "modification_time": {"type": "date"},
        });
        for (index, properties) in [("accounts", accounts_mapping), ("transactions", transactions)]
        {
            let settings = json!({"index.number_of_shards": 1, "index.number_of_replicas": 0});
            let body = json!({"settings": settings, "mappings": {"properties": properties}});
            self.wire.ask(Method::PUT, &self.index(index), Some(&body)).await?;
        }
        if self.way == Way::Scripts {
            for (script, source) in SCRIPTS {
                let body = json!({"script": {"lang": "painless", "source": source}});
                let path = format!("_scripts/{}", self.index(script));
                self.wire.ask(Method::PUT, &path, Some(&body)).await?;
            }
        }
        for id in accounts {
            let body = json!({"balance": balance, "pending_transactions": []});
            self.wire.ask(Method::PUT, &self.document("accounts", "_doc", id), Some(&body)).await?;
        }
        Ok(())
    }

    /// Drops all indices and scripts.
    ///
    /// # Errors
    /// As the server.
    pub async fn remove(&self) -> Result<(), Failure> {
        for index in ["accounts", "transactions"] {
            self.wire.ask(Method::DELETE, &self.index(index), None).await?;
        }
        for (script, _) in SCRIPTS.iter().filter(|_| self.way == Way::Scripts) {
            self.wire
                .ask(Method::DELETE, &format!("_scripts/{}", self.index(script)), None)
                .await?;
        }
        Ok(())
    }

    /// Returns an account.
    ///
    /// # Errors
    /// As the server; if there is no such account.
    pub async fn account(&self, id: &str) -> Result<Marked, Failure> {
        let found =
            self.wire.ask(Method::GET, &self.document("accounts", "_doc", id), None).await?;
        Ok(serde_json::from_value(found.body["_source"].clone())?)
    }

    /// Returns the state of a transaction; `None` if it was not created.
    ///
    /// # Errors
    /// As the server.
    pub async fn state(&self, id: &str) -> Result<Option<String>, Failure> {
        let path = self.document("transactions", "_doc", id);
        let found = self.wire.ask(Method::GET, &path, None).await?;
        Ok(found.body["_source"]["transaction_state"].as_str().map(str::to_owned))
    }

    /// Carries out a transfer, from its creation to its end.
    ///
    /// # Errors
    /// [`Killed`], or as the server. The recovery then completes or reverts the transfer.
    pub async fn transfer(&self, transfer: &Transfer) -> Result<Ended, Failure> {
        self.transfer_with(transfer, &|_| Box::pin(async {})).await
    }

    /// Carries out a transfer with pauses.
    ///
    /// `pause` gets the name of the next step.
    ///
    /// # Errors
    /// As [`Peer::transfer`].
    pub async fn transfer_with(
        &self,
        transfer: &Transfer,
        pause: Pause<'_>,
    ) -> Result<Ended, Failure> {
        let Transfer { id, from, to, amount } = transfer;
        let now = now();
        let body = json!({
            "src_acct": from, "dest_acct": to, "amount": amount, "transaction_state": "created",
            "creation_time": now, "modification_time": now,
        });
        let path = self.document("transactions", "_create", id);
        let created = self.wire.ask(Method::PUT, &path, Some(&body)).await?;
        if created.status == 409 {
            return Ok(Ended::Elsewhere);
        }
        let mut at = version(&created.body);
        pause("pending").await;
        if !self.enter(id, "created", "pending", &mut at).await? {
            return Ok(Ended::Elsewhere);
        }
        pause("debit").await;
        if !self.apply(from, id, -amount).await? {
            self.roll_back(transfer, "pending", &mut at).await?;
            return Ok(Ended::RolledBack);
        }
        pause("credit").await;
        self.apply(to, id, *amount).await?;
        pause("committed").await;
        if !self.enter(id, "pending", "committed", &mut at).await? {
            return Ok(Ended::Elsewhere);
        }
        pause("finished").await;
        self.finish(transfer, &mut at).await?;
        Ok(Ended::Finished)
    }

    async fn finish(&self, transfer: &Transfer, at: &mut Version) -> Result<(), Failure> {
        self.change(&transfer.from, &transfer.id, Change::Unmark).await?;
        self.change(&transfer.to, &transfer.id, Change::Unmark).await?;
        self.enter(&transfer.id, "committed", "finished", at).await.map(drop)
    }

    async fn roll_back(
        &self,
        transfer: &Transfer,
        state: &str,
        at: &mut Version,
    ) -> Result<(), Failure> {
        let Transfer { id, from, to, amount } = transfer;
        if state != "terminating" && !self.enter(id, state, "terminating", at).await? {
            return Ok(());
        }
        self.change(from, id, Change::Undo(-amount)).await?;
        self.change(to, id, Change::Undo(*amount)).await?;
        self.enter(id, "terminating", "rolled-back", at).await.map(drop)
    }

    /// Recovers transactions that are unchanged for `age`, and returns their number.
    ///
    /// The oldest come first, by the wall clock. Before `committed` a transaction is rolled back,
    /// afterwards completed. Correct only if no process still works on them.
    ///
    /// # Errors
    /// As the server.
    pub async fn recover(&self, age: Duration) -> Result<usize, Failure> {
        let index = self.index("transactions");
        let mut recovered = 0;
        for _ in 0..TRIES {
            self.wire.ask(Method::POST, &format!("{index}/_refresh"), None).await?;
            let before = now().saturating_sub(u64::try_from(age.as_millis())?);
            let states = ["created", "pending", "terminating", "committed"];
            let query = json!({"bool": {"filter": [
                {"terms": {"transaction_state": states}}, {"range": {"modification_time": {"lte": before}}},
            ]}});
            let body = json!({
                "size": BATCH, "sort": [{"modification_time": "asc"}], "seq_no_primary_term": true, "query": query,
            });
            let found =
                self.wire.ask(Method::POST, &format!("{index}/_search"), Some(&body)).await?;
            let hits = found.body["hits"]["hits"].as_array().cloned().unwrap_or_default();
            if hits.is_empty() {
                return Ok(recovered);
            }
            recovered += hits.len();
            for hit in hits {
                let text =
                    |field: &str| hit["_source"][field].as_str().unwrap_or_default().to_owned();
                let (from, to, state) =
                    (text("src_acct"), text("dest_acct"), text("transaction_state"));
                let id = hit["_id"].as_str().unwrap_or_default().to_owned();
                let amount = hit["_source"]["amount"].as_i64().unwrap_or_default();
                let (transfer, mut at) = (Transfer { id, from, to, amount }, version(&hit));
                match state.as_str() {
                    "committed" => self.finish(&transfer, &mut at).await?,
                    state => self.roll_back(&transfer, state, &mut at).await?,
                }
            }
        }
        Err("transactions are left, or come up again and again".into())
    }

    /// Adds to an account and marks it.
    ///
    /// Returns `false` if the balance is too low.
    ///
    /// A change that already happened counts as done.
    async fn apply(&self, account: &str, id: &str, amount: i64) -> Result<bool, Failure> {
        let after = self.change(account, id, Change::Apply(amount)).await?;
        Ok(after.pending_transactions.iter().any(|of| of == id))
    }

    /// Changes one account, and returns its state.
    async fn change(&self, account: &str, id: &str, change: Change) -> Result<Marked, Failure> {
        if self.way == Way::Scripts {
            let (script, amount) = change.script();
            let params = json!({"id": id, "amount": amount});
            let answer = self.script("accounts", account, script, &params).await?;
            return Ok(serde_json::from_value(answer.body["get"]["_source"].clone())?);
        }
        let path = self.document("accounts", "_doc", account);
        for _ in 0..TRIES {
            let found = self.wire.ask(Method::GET, &path, None).await?;
            let before: Marked = serde_json::from_value(found.body["_source"].clone())?;
            let Some(after) = change.of(&before, id) else { return Ok(before) };
            let doc = serde_json::to_value(&after)?;
            let written = self.merge("accounts", account, version(&found.body), doc).await?;
            if written.status != 409 {
                return Ok(after);
            }
        }
        Err(format!("{account} is changed by other transfers all the time").into())
    }

    /// Moves a transaction from a first state to another one.
    ///
    /// Returns whether the transaction was in the first state.
    async fn enter(
        &self,
        id: &str,
        from: &str,
        to: &str,
        at: &mut Version,
    ) -> Result<bool, Failure> {
        if self.way == Way::Scripts {
            let params = json!({"from": from, "to": to, "now": now()});
            let answer = self.script("transactions", id, "enter", &params).await?;
            return Ok(answer.body["result"] == "updated");
        }
        // The version determines the stored state.
        let doc = json!({"transaction_state": to, "modification_time": now()});
        let written = self.merge("transactions", id, *at, doc).await?;
        *at = version(&written.body);
        Ok(written.status != 409)
    }

    async fn script(
        &self,
        index: &str,
        id: &str,
        script: &str,
        params: &Value,
    ) -> Result<Answer, Failure> {
        let path = self.document(index, "_update", id);
        let path = format!("{path}?_source=true&retry_on_conflict={TRIES}");
        let body = json!({"script": {"id": self.index(script), "params": params}});
        self.wire.ask(Method::POST, &path, Some(&body)).await
    }

    async fn merge(
        &self,
        index: &str,
        id: &str,
        (seq_no, term): Version,
        doc: Value,
    ) -> Result<Answer, Failure> {
        let path = self.document(index, "_update", id);
        let path = format!("{path}?if_seq_no={seq_no}&if_primary_term={term}");
        self.wire.ask(Method::POST, &path, Some(&json!({"doc": doc}))).await
    }

    fn index(&self, what: &str) -> String {
        format!("{}-seed-{what}", self.name)
    }

    fn document(&self, index: &str, how: &str, id: &str) -> String {
        format!("{}/{how}/{id}", self.index(index))
    }
}

/// The version of a document: `_seq_no` and `_primary_term`.
type Version = (u64, u64);

fn version(answer: &Value) -> Version {
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    (number("_seq_no"), number("_primary_term"))
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
