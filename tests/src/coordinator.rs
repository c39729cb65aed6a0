//! Coordinators that are processes of their own, so that they can be killed and paused.
//!
//! A test starts the binary `txn-test-coordinator` with a [`Job`], lets it run into a hold of the proxy, and kills or pauses
//! it there. The process says what it learned in lines of JSON, each a [`Word`].

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use txn_core::event::{Event, Observer};
use txn_core::{Config, Domain, Error, Options, Tid};
use txn_es::{EsConfig, EsStore};
use txn_testkit::servers::Process;

use crate::bank::{self, Accounts, account};
use crate::ground::PATIENCE;

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Where the server is, or the proxy in front of it.
    pub url: String,
    /// The domain.
    pub domain: String,
    /// The collection of accounts.
    pub collection: String,
    /// The lease in milliseconds.
    pub lease_ms: u64,
    /// Operations in one request: with 1 each document is written by a request of its own.
    pub bulk_items: usize,
    /// What.
    pub task: Task,
}

/// What a process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// [`transfer`], once.
    Transfer,
    /// One pass of the janitor.
    Recover,
}

/// What a process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// An attempt began.
    Attempt(String),
    /// The transfer was acknowledged, after so many attempts.
    Committed(u32),
    /// The transfer failed, with this kind of error, in words.
    Failed(String, String),
    /// The janitor passed; whether it left a clean domain.
    Recovered(bool),
    /// Everything is applied, and the process ends.
    Drained(bool),
}

fn say(word: &Word) {
    println!("{}", serde_json::to_string(word).expect("encodes"));
}

/// Tells of attempts.
#[derive(Debug)]
struct Announcer;

impl Observer for Announcer {
    fn on_event(&self, event: &Event) {
        if let Event::Started { tid } = event {
            say(&Word::Attempt(tid.to_string()));
        }
    }
}

/// The documents of a transfer: three that change, and one that is only read. `slip` is inserted, or deleted if it
/// is there.
pub const ACCOUNTS: [&str; 4] = ["a0", "a1", "a2", "a3"];

/// Moves one unit from `a0` to `a1` and one to `a2`, reads `a3`, and lets the slip come or go.
///
/// # Errors
/// As the engine says.
pub async fn transfer(
    domain: &Domain,
    accounts: &Accounts,
    options: &Options,
) -> Result<txn_core::Receipt, Error> {
    let moved = domain
        .run::<_, Error, _>(options, async |tx| {
            let found = tx.get_many(accounts, ACCOUNTS.into_iter().chain(["slip"])).await?;
            let [Some(from), Some(to), Some(third), Some(_), slip] = found[..] else {
                panic!("exist: {found:?}")
            };
            tx.put(accounts, "a0", &account(from.balance - 2))?;
            tx.put(accounts, "a1", &account(to.balance + 1))?;
            tx.put(accounts, "a2", &account(third.balance + 1))?;
            match slip {
                Some(_) => tx.delete(accounts, "slip"),
                None => tx.insert(accounts, "slip", &account(0)),
            }
        })
        .await?;
    Ok(moved.receipt)
}

/// What the process does.
///
/// # Panics
/// If it can not begin.
pub async fn carry_out(job: Job) {
    let config = EsConfig::from_url(&job.url).expect("an address");
    let config = config.with_max_bulk_items(job.bulk_items);
    let store = Arc::new(EsStore::connect(config).await.expect("a server that answers"));
    let config = Config::default()
        .with_janitor_interval(None)
        .with_deadline(PATIENCE)
        .with_lease(Duration::from_millis(job.lease_ms))
        .with_observer(Some(Arc::new(Announcer)));
    let domain = Domain::create(store, &job.domain, config).await.expect("opens");
    let accounts = bank::open(&domain, &job.collection).await;
    say(&match job.task {
        Task::Transfer => match transfer(&domain, &accounts, &Options::default()).await {
            Ok(receipt) => Word::Committed(receipt.attempts),
            Err(error) => Word::Failed(format!("{:?}", error.kind()), error.to_string()),
        },
        Task::Recover => match domain.janitor_pass().await {
            Ok(report) => Word::Recovered(report.is_clean()),
            Err(error) => Word::Failed(format!("{:?}", error.kind()), error.to_string()),
        },
    });
    say(&Word::Drained(domain.shutdown(PATIENCE).await));
}

/// A process. Killed when dropped.
#[derive(Debug)]
pub struct Coordinator {
    child: Child,
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    attempts: Vec<Tid>,
}

impl Coordinator {
    /// Starts the binary at a path: `env!("CARGO_BIN_EXE_txn-test-coordinator")`.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn start(binary: &Path, job: &Job) -> Self {
        let mut child = Command::new(binary)
            .arg(serde_json::to_string(job).expect("encodes"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("starts");
        let process = child.id().and_then(Process::of).expect("it lives");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, process, lines, attempts: Vec::new() }
    }

    /// Kills it (SIGKILL), and returns the attempts that it had begun.
    ///
    /// # Panics
    /// If it ended before.
    pub async fn kill(mut self) -> Vec<Tid> {
        let ended = self.child.try_wait().expect("can be asked");
        assert!(ended.is_none(), "it ended before it was killed: {ended:?}");
        self.child.kill().await.expect("dies");
        // What it said before is still in the pipe.
        while self.word().await.is_some() {}
        self.attempts
    }

    /// Pauses it (SIGSTOP); returns when each of its threads stands still.
    ///
    /// # Panics
    /// If it is gone.
    pub async fn pause(&self) {
        let process = self.process.clone();
        let paused = tokio::task::spawn_blocking(move || process.pause()).await.expect("no panic");
        assert!(paused.expect("pauses"), "it is gone");
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Panics
    /// If it is gone.
    pub fn resume(&self) {
        assert!(self.process.resume().expect("goes on"), "it is gone");
    }

    /// The attempts that are known to have begun.
    #[must_use]
    pub fn attempts(&self) -> &[Tid] {
        &self.attempts
    }

    /// Waits until it ends by itself: what it said, without its attempts.
    ///
    /// # Panics
    /// If it takes too long.
    pub async fn ends(&mut self) -> Vec<Word> {
        let all = async {
            let mut said = Vec::new();
            while let Some(word) = self.word().await {
                said.push(word);
            }
            said
        };
        let said = tokio::time::timeout(PATIENCE, all).await.expect("ends");
        let status = self.child.wait().await.expect("ends");
        assert!(status.success(), "{status}, after {said:?}");
        said
    }

    /// The next word that is no attempt.
    async fn word(&mut self) -> Option<Word> {
        loop {
            let line = self.lines.next_line().await.expect("a line")?;
            match serde_json::from_str(&line).expect("a word") {
                Word::Attempt(tid) => self.attempts.push(tid.parse().expect("a tid")),
                word => return Some(word),
            }
        }
    }
}
