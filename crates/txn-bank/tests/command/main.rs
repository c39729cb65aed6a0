//! The command, as users and scripts run it.

mod accounts;
mod audit;
mod demo;
mod input;
mod notify;
mod owners;
mod requests;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use tempfile::TempDir;
use txn_core::{Config, Domain};
use txn_outbox::{EventSource, Outbox, OutboxConfig};
use txn_redb::RedbStore;

/// A separate file, and the command that works on it.
struct Desk {
    directory: TempDir,
}

/// The result of a run of the command.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by itself"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

impl Ran {
    /// Refused: one line on standard error, no standard output.
    #[track_caller]
    fn refused(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("error: ") && self.err.contains(words), "{}", self.err);
        assert_eq!(self.out, "");
    }

    /// Refused by the command line parser.
    #[track_caller]
    fn refused_by_usage(&self, words: &str) {
        assert_eq!(self.code, 2, "{}{}", self.out, self.err);
        assert!(self.err.contains(words), "{}", self.err);
    }

    /// Each line of the output as JSON, after success.
    #[track_caller]
    fn json(&self) -> Vec<serde_json::Value> {
        let lines = self.out.lines();
        lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        assert_eq!(self.err, "");
        self
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txn-bank"));
    let logins = ["TXN_API_KEY", "TXN_BEARER_TOKEN", "TXN_HEADERS"];
    for variable in ["TXN_BANK_STORE", "TXN_BANK_LOG"].into_iter().chain(logins) {
        command.env_remove(variable);
    }
    command
}

impl Desk {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    /// A file with three accounts.
    fn with_accounts() -> Self {
        let desk = Self::new();
        desk.run("init").done();
        desk.run("open alice --owner Alice --balance 100").done();
        desk.run("open bob --owner Bob").done();
        desk.run("open carol --owner Carol --overdraft").done();
        desk
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("bank.redb")
    }

    fn command(&self, words: &str) -> Command {
        let mut command = command();
        command.current_dir(&self.directory).args(words.split_whitespace());
        command
    }

    fn run(&self, words: &str) -> Ran {
        self.command(words).output().expect("runs").into()
    }

    /// Works on the events of the bank, like an operator.
    fn events<T>(&self, work: impl AsyncFnOnce(Arc<dyn EventSource>) -> T) -> T {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("starts");
        let file = RedbStore::open(self.file()).expect("opens");
        let done = runtime.block_on(async {
            let store = Arc::new(file.clone());
            let domain = Domain::open(store, "bank", Config::default()).await.expect("opens");
            let outbox = Outbox::open(&domain, OutboxConfig::default()).await.expect("opens");
            let done = work(outbox.source()).await;
            domain.shutdown(std::time::Duration::from_secs(60)).await;
            done
        });
        drop(runtime);
        file.close();
        done
    }

    /// The number of waiting events, of their queues, and of dead letters.
    fn waiting(&self) -> (u64, usize, usize) {
        self.events(async |events| {
            let backlog = events.backlog().await.expect("counts");
            (backlog.events, backlog.queues, backlog.dead)
        })
    }

    /// The dead letters with their errors, by id.
    fn dead_letters(&self) -> Vec<(String, String)> {
        self.events(async |events| {
            let dead = events.dead_letters().await.expect("lists").letters;
            dead.into_iter().map(|letter| (letter.event.id, letter.error)).collect()
        })
    }

    fn balance(&self, name: &str) -> i64 {
        let ran = self.run(&format!("balance {name} --json")).done();
        ran.json()[0]["balance"].as_i64().expect("a number")
    }
}
