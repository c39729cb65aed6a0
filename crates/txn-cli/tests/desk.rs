//! A file with a domain, and the command on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use txn_core::{AttemptId, Config, Domain};
use txn_fixtures::plain_store;
use txn_redb::RedbStore;

use super::owners::{self, Names};
use super::ran::{Ran, command};

/// A directory with one file.
pub(crate) struct Desk {
    directory: TempDir,
}

fn names() -> Names {
    Names { domain: "shop".to_owned(), stock: "stock".to_owned(), orders: "orders".to_owned() }
}

impl Desk {
    pub(crate) fn empty() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    /// A domain with the documents `stock/shelf` and `orders/one`.
    pub(crate) fn new() -> Self {
        let desk = Self::empty();
        desk.run("init stock orders").says(0, &["is ready"]);
        desk.with_file(async |file| owners::write_first(Arc::new(file), &names()).await);
        desk
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("shop.redb")
    }

    /// Runs the command on the domain.
    pub(crate) fn run(&self, words: &str) -> Ran {
        let mut command = command(self.directory.path());
        command.env("TXN_STORE", format!("redb:{}", self.file().display()));
        // The lease of the owners.
        command.env("TXN_DOMAIN", "shop").env("TXN_LEASE", "1");
        Ran::of(command, words)
    }

    /// Runs the command with the configuration of the directory alone.
    pub(crate) fn run_configured(&self, words: &str) -> Ran {
        Ran::of(command(self.directory.path()), words)
    }

    /// Runs the command without a store.
    pub(crate) fn run_alone(words: &str) -> Ran {
        let home = tempfile::tempdir().expect("a directory");
        Ran::of(command(home.path()), words)
    }

    /// Writes a file beside the domain.
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("makes the folder");
        std::fs::write(path, text).expect("writes");
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

    /// Leaves a commit that is not applied to `stock`.
    pub(crate) fn die_after_commit(&self) -> AttemptId {
        self.with_file(async |file| owners::die_after_commit(Arc::new(file), &names()).await)
    }

    /// Leaves a lock without a record on `stock/shelf`.
    pub(crate) fn die_before_commit(&self) -> AttemptId {
        self.with_file(async |file| owners::die_before_commit(Arc::new(file), &names()).await)
    }

    /// Changes a document like a plain client.
    pub(crate) fn change(&self, collection: &str, id: &str, edit: impl FnOnce(&mut Value)) {
        self.with_file(async |file| plain_store::change(&file, collection, id, edit).await);
    }

    /// Deletes a document like an operator by mistake.
    pub(crate) fn delete(&self, collection: &str, id: &str) {
        self.with_file(async |file| plain_store::delete(&file, collection, id).await);
    }
}
