//! A file with a domain, the command on it, and owners that die.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tempfile::TempDir;
use txn_core::clock::{Clock, SystemClock};
use txn_core::store::{Key, Layer, Outcome, Read, Store, Write, WriteOp};
use txn_core::{AttemptId, Config, Domain, Error, Options, Raw};
use txn_redb::RedbStore;

/// A text in the bodies of all documents, which no output may repeat.
pub(crate) const CANARY: &str = "canary-in-a-body";

/// A directory with one file.
pub(crate) struct Desk {
    directory: TempDir,
}

/// The result of a run of the command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
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
    /// Checks the exit code and words of the output. No output repeats a body.
    #[track_caller]
    pub(crate) fn says(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.out.contains(word), "{word:?} is missing: {}{}", self.out, self.err);
        }
        let all = format!("{}{}", self.out, self.err);
        assert!(!all.contains(CANARY), "{all}");
        self
    }

    /// The output as JSON, after a check of the exit code.
    #[track_caller]
    pub(crate) fn json(self, code: i32) -> Value {
        let ran = self.says(code, &[]);
        assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
        serde_json::from_str(&ran.out).expect("JSON")
    }

    /// A failure: one line on standard error, with the remedy.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("error: ") && self.err.contains(words), "{}", self.err);
        assert!(self.err.contains("Do: "), "{}", self.err);
    }
}

impl Ran {
    /// A wrong command line.
    #[track_caller]
    pub(crate) fn fails_by_usage(self, words: &str) {
        assert_eq!(self.code, 2, "{self:?}");
        assert!(self.err.contains(words), "{}", self.err);
    }
}

/// The messages of an answer, by their codes.
#[track_caller]
pub(crate) fn codes(json: &Value) -> Vec<&str> {
    let messages = json["messages"].as_array().expect("a list");
    for message in messages {
        assert!(message["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{json}");
    }
    messages.iter().filter_map(|message| message["code"].as_str()).collect()
}

/// A clock that is ten minutes behind, so that all work is old.
#[derive(Debug, Default)]
struct Past(SystemClock);

#[async_trait]
impl Clock for Past {
    fn wall(&self) -> Duration {
        self.0.wall().saturating_sub(Duration::from_secs(600))
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

/// A file whose writes to `stock` are refused after the first commit.
#[derive(Debug)]
struct Dying {
    inner: RedbStore,
    is_dead: AtomicBool,
}

#[async_trait]
impl Layer for Dying {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let commits = |write: &Write| {
            matches!(&write.op, WriteOp::Create(source) | WriteOp::Replace(source, _)
                if source.contains("\"state\":\"committed\""))
        };
        let mut outcomes = Vec::new();
        for write in writes {
            let refused = self.is_dead.load(Ordering::SeqCst) && &*write.key.collection == "stock";
            outcomes.push(match refused {
                true => Outcome::RejectedInDoubt("dead".to_owned()),
                false => self.inner.write_many(std::slice::from_ref(write)).await.swap_remove(0),
            });
            self.is_dead.fetch_or(commits(write), Ordering::SeqCst);
        }
        outcomes
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txn"));
    for variable in [
        "TXN_STORE",
        "TXN_DOMAIN",
        "TXN_LEASE",
        "TXN_LOG",
        "TXN_API_KEY",
        "TXN_BEARER_TOKEN",
        "TXN_HEADERS",
    ] {
        command.env_remove(variable);
    }
    command
}

impl Desk {
    pub(crate) fn empty() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    /// A domain with the documents `stock/shelf` and `orders/one`.
    pub(crate) fn new() -> Self {
        let desk = Self::empty();
        desk.run("init stock orders").says(0, &["is ready"]);
        desk.with_file(async |file| {
            let domain = Domain::open(Arc::new(file), "shop", past()).await.expect("opens");
            let (stock, orders) = collections(&domain).await;
            let wait = Options::default().with_wait_for(txn_core::WaitFor::Apply);
            let write = domain.run::<_, Error, _>(&wait, async |tx| {
                tx.put(&stock, "shelf", &body())?;
                tx.put(&orders, "one", &body())
            });
            write.await.expect("writes");
            domain.shutdown(Duration::from_secs(60)).await;
        });
        desk
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("shop.redb")
    }

    /// Runs the command on the domain.
    pub(crate) fn run(&self, words: &str) -> Ran {
        let mut command = command();
        command.env("TXN_STORE", format!("redb:{}", self.file().display()));
        // The lease of the owners.
        command.env("TXN_DOMAIN", "shop").env("TXN_LEASE", "1").current_dir(&self.directory);
        command.args(words.split_whitespace()).output().expect("runs").into()
    }

    /// Runs the command without a store.
    pub(crate) fn run_alone(words: &str) -> Ran {
        command().args(words.split_whitespace()).output().expect("runs").into()
    }

    /// Writes a file beside the domain.
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("writes");
    }

    /// Opens the file without the engine, and closes it.
    pub(crate) fn with_file<T>(&self, work: impl AsyncFnOnce(RedbStore) -> T) -> T {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("starts");
        let file = RedbStore::open(self.file()).expect("opens");
        let done = runtime.block_on(work(file.clone()));
        drop(runtime);
        file.close();
        done
    }

    /// Works on the domain as a process, and ends in order.
    pub(crate) fn beside<T>(&self, work: impl AsyncFnOnce(Domain) -> T) -> T {
        self.with_file(async |file| {
            let config = Config::default().with_janitor_interval(None);
            let domain = Domain::open(Arc::new(file), "shop", config).await.expect("opens");
            let done = work(domain.clone()).await;
            domain.shutdown(Duration::from_secs(60)).await;
            done
        })
    }

    /// Commits a write of both documents as the process `till-7`, and dies before it is applied to
    /// `stock`.
    pub(crate) fn die_after_commit(&self) -> AttemptId {
        self.with_file(async |file| {
            let store = Arc::new(Dying { inner: file, is_dead: AtomicBool::new(false) });
            let config = past()
                .with_process_name("till-7".to_owned())
                .with_application_name(Some("tills".to_owned()));
            let domain = Domain::open(store, "shop", config).await.expect("opens");
            let (stock, orders) = collections(&domain).await;
            let tx = domain.begin(&Options::default()).expect("begins");
            let tid = tx.tid();
            tx.put(&stock, "shelf", &body()).expect("buffers");
            tx.put(&orders, "one", &body()).expect("buffers");
            tx.commit().await.expect("commits");
            domain.shutdown(Duration::from_millis(300)).await;
            tid
        })
    }

    /// Locks `stock/shelf` as a process that died before its commit. Returns its tid.
    pub(crate) fn die_before_commit(&self) -> AttemptId {
        let tid = self.with_file(async |file| {
            let config =
                Config::default().with_janitor_interval(None).with_clock(Arc::new(Past::default()));
            let domain = Domain::open(Arc::new(file), "shop", config).await.expect("opens");
            let tid = domain.begin(&Options::default()).expect("begins").tid();
            domain.shutdown(Duration::from_secs(5)).await;
            tid
        });
        self.change("stock", "shelf", |value| value["transaction_tid"] = tid.to_string().into());
        tid
    }

    /// Changes a document like a plain client.
    pub(crate) fn change(&self, collection: &str, id: &str, edit: impl FnOnce(&mut Value)) {
        self.with_file(async |store| {
            let key = Key::new(collection, id);
            let read = store.read_primary(std::slice::from_ref(&key)).await.remove(0);
            let Read::Found { version, source } = read else { panic!("{read:?}") };
            let mut value: Value = serde_json::from_str(&source).expect("JSON");
            edit(&mut value);
            let write = Write::new(key, WriteOp::Replace(value.to_string().into(), version));
            let outcome = store.write_many(&[write]).await.remove(0);
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        });
    }

    /// Deletes a document like an operator by mistake.
    pub(crate) fn delete(&self, collection: &str, id: &str) {
        self.with_file(async |store| {
            let key = Key::new(collection, id);
            let read = store.read_primary(std::slice::from_ref(&key)).await.remove(0);
            let Read::Found { version, .. } = read else { panic!("{read:?}") };
            let write = Write::new(key, WriteOp::Delete(version));
            let outcome = store.write_many(&[write]).await.remove(0);
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        });
    }
}

/// The settings of a process that worked ten minutes ago.
fn past() -> Config {
    Config::default().with_janitor_interval(None).with_clock(Arc::new(Past::default()))
}

async fn collections(domain: &Domain) -> (txn_core::Collection<Raw>, txn_core::Collection<Raw>) {
    let stock = domain.raw_collection("stock").await.expect("opens");
    let orders = domain.raw_collection("orders").await.expect("opens");
    (stock, orders)
}

fn body() -> Raw {
    Raw::new(format!("{{\"text\":\"{CANARY}\"}}"))
}
