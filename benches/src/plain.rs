//! Plain, unsafe clients: the same documents by `_mget` and `_bulk`.
//!
//! The clients write without conditions, on the versions that they read, or with shared requests.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{Mutex, mpsc, oneshot};
use txn_core::store::fields::TRANSACTION_TID;

use crate::Failure;
use crate::accounts::{Account, Books, delta};
use crate::content::Content;
use crate::setup::Setup;

/// The number of concurrent shared requests of a kind. Transactions have the same number.
const SLOTS: usize = 4;

/// The number of operations in one shared request.
const OPERATIONS: usize = 500;

/// Plain requests to the accounts of an index.
#[derive(Clone, Debug)]
pub struct Plain {
    client: reqwest::Client,
    url: String,
    index: String,
    content: Content,
}

/// The content and the version of a document.
#[derive(Debug)]
struct Found {
    id: String,
    account: Account,
    version: (u64, u64),
}

impl Plain {
    /// Creates a client for the accounts of this index.
    #[must_use]
    pub fn new(setup: &Setup, index: &str) -> Self {
        let Setup { url, plain, content, .. } = setup;
        let (client, url, index) = (plain.clone(), url.clone(), index.to_owned());
        Self { client, url, index, content: *content }
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the HTTP client.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Creates accounts.
    ///
    /// # Errors
    /// As the server.
    pub async fn open(&self, ids: &[String]) -> Result<(), Failure> {
        for part in ids.chunks(if self.content == Content::Balance { 2_000 } else { 200 }) {
            let mut body = String::new();
            for id in part {
                let account = Account { rest: self.content.rest(), ..Account::default() };
                push(&mut body, id, None, &account)?;
            }
            self.write(body).await?;
        }
        Ok(())
    }

    /// Moves one unit in a circle, without atomicity or isolation.
    ///
    /// # Errors
    /// As the server.
    pub async fn transfer(&self, ids: &[String]) -> Result<(), Failure> {
        let found = self.read(ids).await?;
        self.write(moved(found, false)?).await
    }

    /// Moves one unit by a transaction's requests without its protocol.
    ///
    /// The requests follow one after the other: `_mget`, `_bulk`, and `_bulk` of one document.
    ///
    /// # Errors
    /// As the server.
    pub async fn transfer_in_steps(&self, ids: &[String]) -> Result<(), Failure> {
        let found = self.read(ids).await?;
        self.write_in_steps(moved(found, false)?).await
    }

    /// As [`Plain::transfer_in_steps`], but the read is over before the clock starts.
    ///
    /// Returns the duration of the writes.
    ///
    /// # Errors
    /// As the server.
    pub async fn write_what_is_known(
        &self,
        ids: &[String],
        pause: Duration,
    ) -> Result<Duration, Failure> {
        let body = moved(self.read(ids).await?, false)?;
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        self.write_in_steps(body).await?;
        Ok(began.elapsed())
    }

    async fn write_in_steps(&self, body: String) -> Result<(), Failure> {
        let first: Vec<&str> = body.split_inclusive('\n').take(2).collect();
        let first = first.concat();
        self.write(body).await?;
        self.write(first).await
    }

    /// Moves one unit on the versions that were read.
    ///
    /// Careful clients do the same. After a conflict the client writes nothing more and starts
    /// again. The writes before the conflict stay, so money may be lost. Returns the number of
    /// tries.
    ///
    /// # Errors
    /// As the server.
    pub async fn retried_transfer(&self, ids: &[String]) -> Result<u32, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let found = self.read(ids).await?;
            if !self.bulk(moved(found, true)?).await?.errors {
                return Ok(tries);
            }
        }
    }

    /// Reads accounts.
    ///
    /// # Errors
    /// As the server.
    pub async fn look(&self, ids: &[String]) -> Result<(), Failure> {
        self.read(ids).await.map(drop)
    }

    /// Returns the sums over accounts.
    ///
    /// # Errors
    /// As the server.
    pub async fn books(&self, ids: &[String]) -> Result<Books, Failure> {
        let mut books = Books::default();
        for part in ids.chunks(2_000) {
            self.read(part).await?.iter().for_each(|found| books.add(&found.account));
        }
        Ok(books)
    }

    /// Returns the bulk request that locks these accounts, as transactions lock documents.
    ///
    /// With `whole` the request writes whole documents, otherwise partial updates.
    ///
    /// # Errors
    /// As the server.
    pub async fn locks(&self, ids: &[String], whole: bool, lock: usize) -> Result<String, Failure> {
        let mut body = String::new();
        for found in self.read(ids).await? {
            let lock =
                json!({ TRANSACTION_TID: format!("{lock:08x}-1dd2-11b2-8001-0123456789ab") });
            let (action, source) = match whole {
                true => {
                    let mut source = serde_json::to_value(&found.account)?;
                    source[TRANSACTION_TID] = lock[TRANSACTION_TID].clone();
                    ("index", source)
                }
                false => ("update", json!({ "doc": lock })),
            };
            let (seq_no, primary_term) = found.version;
            let on =
                json!({ "_id": found.id, "if_seq_no": seq_no, "if_primary_term": primary_term });
            writeln!(body, "{}", json!({ action: on }))?;
            writeln!(body, "{source}")?;
        }
        Ok(body)
    }

    /// Sends a bulk request in which no item may fail.
    ///
    /// # Errors
    /// As the server.
    pub async fn write(&self, body: String) -> Result<(), Failure> {
        self.bulk(body).await?.accepted()
    }

    async fn read(&self, ids: &[String]) -> Result<Vec<Found>, Failure> {
        let body = json!({ "ids": ids }).to_string();
        let answer: Answer = self.post("_mget", body).await?;
        Ok(answer.docs.into_iter().map(Doc::found).collect())
    }

    async fn bulk(&self, body: String) -> Result<Written, Failure> {
        self.post("_bulk", body).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: String) -> Result<T, Failure> {
        let request = self.client.post(format!("{}/{}/{path}", self.url, self.index));
        let request = request.header("content-type", "application/json").body(body);
        let answer = request.send().await?.error_for_status()?.bytes().await?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

/// Plain clients with joined requests: the upper bound for shared requests.
///
/// A request with all queued operations goes out when a slot is free.
#[derive(Clone, Debug)]
pub struct Batched {
    reads: mpsc::UnboundedSender<Waiting<Vec<String>, Vec<Found>>>,
    writes: mpsc::UnboundedSender<Waiting<String, ()>>,
}

/// A part of a request.
#[derive(Debug)]
struct Waiting<Q, A> {
    asked: Q,
    operations: usize,
    caller: oneshot::Sender<A>,
}

impl Batched {
    /// Starts on the current runtime, until the last handle is dropped.
    #[must_use]
    pub fn new(plain: &Plain) -> Self {
        let (reads, queue) = mpsc::unbounded_channel();
        let read_queue = Arc::new(Mutex::new(queue));
        let (writes, queue) = mpsc::unbounded_channel();
        let write_queue = Arc::new(Mutex::new(queue));
        for _ in 0..SLOTS {
            tokio::spawn(serve_reads(plain.clone(), read_queue.clone()));
            tokio::spawn(serve_writes(plain.clone(), write_queue.clone()));
        }
        Self { reads, writes }
    }

    /// As [`Plain::transfer`].
    ///
    /// # Errors
    /// As the server.
    pub async fn transfer(&self, ids: &[String]) -> Result<(), Failure> {
        let found = ask(&self.reads, ids.to_vec(), ids.len()).await?;
        ask(&self.writes, moved(found, false)?, ids.len()).await
    }
}

async fn ask<Q, A>(
    queue: &mpsc::UnboundedSender<Waiting<Q, A>>,
    asked: Q,
    operations: usize,
) -> Result<A, Failure> {
    let (caller, answered) = oneshot::channel();
    queue.send(Waiting { asked, operations, caller }).map_err(|_| "the batcher has ended")?;
    answered.await.map_err(|_| "a shared plain request failed".into())
}

type Queue<Q, A> = Arc<Mutex<mpsc::UnboundedReceiver<Waiting<Q, A>>>>;

/// Returns the queued operations, at most those of one request.
///
/// The function waits for at least one operation.
///
/// The result is empty after the last handle was dropped.
async fn batch<Q, A>(queue: &Queue<Q, A>) -> Vec<Waiting<Q, A>> {
    let mut queue = queue.lock().await;
    let mut batch: Vec<_> = queue.recv().await.into_iter().collect();
    let mut operations = batch.iter().map(|first| first.operations).sum::<usize>();
    while operations < OPERATIONS
        && let Ok(next) = queue.try_recv()
    {
        operations += next.operations;
        batch.push(next);
    }
    batch
}

/// Serves reads. After a failed request the channels of its callers close.
async fn serve_reads(plain: Plain, queue: Queue<Vec<String>, Vec<Found>>) {
    loop {
        let batch = batch(&queue).await;
        if batch.is_empty() {
            return;
        }
        let ids: Vec<String> = batch.iter().flat_map(|part| part.asked.iter().cloned()).collect();
        let Ok(found) = plain.read(&ids).await else { continue };
        let mut found = found.into_iter();
        for part in batch {
            let _ = part.caller.send(found.by_ref().take(part.operations).collect());
        }
    }
}

async fn serve_writes(plain: Plain, queue: Queue<String, ()>) {
    loop {
        let batch = batch(&queue).await;
        if batch.is_empty() {
            return;
        }
        let body = batch.iter().map(|part| part.asked.as_str()).collect();
        if plain.write(body).await.is_ok() {
            for part in batch {
                let _ = part.caller.send(());
            }
        }
    }
}

/// Returns the bulk request that moves one unit in a circle.
///
/// `on_versions`: only if the documents still have the versions that were read.
fn moved(found: Vec<Found>, on_versions: bool) -> Result<String, Failure> {
    let mut body = String::new();
    for (place, found) in found.into_iter().enumerate() {
        let version = on_versions.then_some(found.version);
        push(&mut body, &found.id, version, &found.account.moved(delta(place)))?;
    }
    Ok(body)
}

fn push(
    body: &mut String,
    id: &str,
    version: Option<(u64, u64)>,
    account: &Account,
) -> Result<(), Failure> {
    let condition = version.map_or_else(String::new, |(seq_no, term)| {
        format!(r#","if_seq_no":{seq_no},"if_primary_term":{term}"#)
    });
    let source = serde_json::to_string(account)?;
    writeln!(body, r#"{{"index":{{"_id":"{id}"{condition}}}}}"#)?;
    writeln!(body, "{source}")?;
    Ok(())
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
    #[serde(rename = "_seq_no", default)]
    seq_no: u64,
    #[serde(rename = "_primary_term", default)]
    term: u64,
}

impl Doc {
    fn found(self) -> Found {
        let account = self.source.unwrap_or_default();
        Found { id: self.id, account, version: (self.seq_no, self.term) }
    }
}

#[derive(Deserialize)]
struct Written {
    errors: bool,
}

impl Written {
    fn accepted(self) -> Result<(), Failure> {
        if self.errors { Err("an item of the plain bulk failed".into()) } else { Ok(()) }
    }
}
