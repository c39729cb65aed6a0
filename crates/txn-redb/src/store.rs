//! The store: sends changes to the writer, and reads directly.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redb::StorageBackend;
use txn_store::embedded;
use txn_store::{
    CollectionIdentity, CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page,
    Read, Store, StoreError, StoreErrorKind, Write,
};

use crate::apply::Command;
use crate::config::RedbConfig;
use crate::error::OpenError;
use crate::file::File;
use crate::read::{self, PageOf};
use crate::writer::{NoAnswer, Queue, deadline};

/// The maximum number of keys of a read on the caller's thread.
///
/// A read takes a few microseconds, less than the hop to another thread, and never waits for the
/// writer. Larger reads and scans go to the blocking threads of the runtime.
const DIRECT: usize = 64;

/// A store in one file. A cheap handle: clones share the file.
///
/// The file is closed with the last clone or by [`close`](Self::close). The store needs a tokio
/// runtime with time enabled, except for opening and closing.
#[derive(Clone)]
pub struct RedbStore {
    open: Arc<Open>,
}

/// The open file and its writer; dropping it closes both.
struct Open {
    file: Arc<File>,
    queue: Queue,
    writer: Mutex<Option<JoinHandle<()>>>,
    timeout: Duration,
}

impl Open {
    fn close(&self) {
        self.queue.close();
        // Held until the end, so that a second close does not return before the first.
        let mut writer = self.writer.lock();
        if writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!(file = %self.file.path().display(), "the writer of the store panicked");
        }
        self.file.close();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("file", &self.open.file.path()).finish_non_exhaustive()
    }
}

impl RedbStore {
    /// Opens the store in this file with the default settings.
    ///
    /// Creates a missing file. A file that was not closed, after a crash, is repaired first. The
    /// repair reads the whole file.
    ///
    /// # Errors
    /// [`OpenError`]: the file is open elsewhere, its directory is missing, access is denied, the
    /// file is not a store, or the file is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, &RedbConfig::default())
    }

    /// Opens the store in this file with these settings; see [`open`](Self::open).
    ///
    /// # Errors
    /// The same as [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, config: &RedbConfig) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let (file, clock) = File::open(path, config)?;
        Self::start(path, file, clock, config)
    }

    /// Opens the store on a backend of redb.
    ///
    /// The function is for tests of disk faults. `config` has the settings.
    ///
    /// The backend replaces the file. The backend has the bytes of the store, and its `sync_data`
    /// decides the durability of a write. Errors contain `name` as the path. Release numbers of
    /// this crate follow those of redb, because [`StorageBackend`] is its trait.
    ///
    /// # Errors
    /// The same as [`open`](Self::open).
    pub fn open_backend(
        name: impl AsRef<Path>,
        backend: impl StorageBackend,
        config: &RedbConfig,
    ) -> Result<Self, OpenError> {
        let name = name.as_ref();
        let (file, clock) = File::open_backend(name, backend, config)?;
        Self::start(name, file, clock, config)
    }

    fn start(path: &Path, file: File, clock: u64, config: &RedbConfig) -> Result<Self, OpenError> {
        let file = Arc::new(file);
        let (queue, writer) = Queue::start(file.clone(), clock, config.queue_bytes)
            .map_err(|error| OpenError::io(path, error))?;
        let (writer, timeout) = (Mutex::new(Some(writer)), config.request_timeout);
        Ok(Self { open: Arc::new(Open { file, queue, writer, timeout }) })
    }

    /// Carries out the queue, stops the writer, and closes the file.
    ///
    /// The close is for all clones. After the return the file can be opened again. Later requests
    /// are [`Outcome::Rejected`] or [`StoreErrorKind::Unavailable`]. Idempotent.
    ///
    /// Blocks the thread for the commits of the queue, mostly a few milliseconds. Dropping the last
    /// clone does the same.
    pub fn close(&self) {
        self.open.close();
    }

    async fn administer(&self, command: Command) -> Result<Option<CollectionInfo>, StoreError> {
        let done = self.open.queue.administer(command, deadline(self.open.timeout)).await;
        done.map_err(|none| {
            StoreError::new(
                StoreErrorKind::Unavailable,
                match none {
                    NoAnswer::NotSent(why) => why,
                    NoAnswer::InDoubt(why) => format!("{why}; the change may still be made"),
                },
            )
        })?
    }

    /// Runs an action on a blocking thread. `None` if the runtime shuts down.
    async fn blocking<R: Send + 'static>(
        &self,
        action: impl FnOnce(&File) -> R + Send + 'static,
    ) -> Option<R> {
        let file = self.open.file.clone();
        tokio::task::spawn_blocking(move || action(&file)).await.ok()
    }
}

fn shutting_down() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the runtime is shutting down")
}

#[async_trait]
impl Store for RedbStore {
    fn limits(&self) -> Limits {
        embedded::LIMITS.with_merges_transactions(true)
    }

    fn request_timeout(&self) -> Duration {
        self.open.timeout
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        if keys.len() <= DIRECT {
            return read::get_many(&self.open.file, keys);
        }
        let owned = keys.to_vec();
        let reads = self.blocking(move |file| read::get_many(file, &owned)).await;
        reads.unwrap_or_else(|| vec![Read::Unavailable(shutting_down()); keys.len()])
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        // The writer answers after the commit, and every read sees the last commit.
        self.get_many(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let refuse = |write| embedded::refuse(&embedded::LIMITS, write).map(Outcome::Invalid);
        let mut outcomes: Vec<Option<Outcome>> = writes.iter().map(refuse).collect();
        let open = writes.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_none());
        let sent: Vec<Write> = open.map(|(write, _)| write.clone()).collect();
        let answers = if sent.len() <= DIRECT && !sent.iter().any(|write| write.op.changes()) {
            read::answer_all(&self.open.file, &sent)
        } else {
            let count = sent.len();
            let answers = self.open.queue.write(sent, deadline(self.open.timeout)).await;
            answers.unwrap_or_else(|none| {
                let outcome = match none {
                    NoAnswer::NotSent(why) => Outcome::Rejected(why),
                    NoAnswer::InDoubt(why) => Outcome::Unknown(why),
                };
                vec![outcome; count]
            })
        };
        let mut answers = answers.into_iter();
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
            *outcome = answers.next();
        }
        let missing = || Outcome::Unknown("the writer did not answer this write".to_owned());
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        // Scans see the last commit, so there is nothing to wait for.
        let found = read::find(&self.open.file, collection)?;
        found.map(|_| ()).ok_or_else(|| embedded::not_found(collection))
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let of = PageOf {
            collection: collection.to_owned(),
            filter: filter.clone(),
            size,
            after: from.as_ref().map(embedded::place_of).transpose()?,
            deadline: deadline(self.open.timeout).into_std(),
        };
        self.blocking(move |file| read::page(file, &of)).await.ok_or_else(shutting_down)?
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        // Opening an existing collection is not a write.
        let found = read::find(&self.open.file, &spec.name)?;
        let owner = spec.role.owner();
        match found {
            Some(info) if owner.is_none() || info.owner.as_deref() == owner => return Ok(info),
            None if !spec.create => return Err(embedded::not_found(&spec.name)),
            _ => {}
        }
        let opened = self.administer(Command::Open(spec.clone())).await?;
        opened.ok_or_else(|| embedded::not_found(&spec.name))
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        let found = self.open.file.look(|snapshot| snapshot.resolve(name))?;
        let found = found.ok_or_else(|| embedded::not_found(name))?;
        let incarnation = found.record.uid;
        let CollectionInfo { name, uid, .. } = read::info(found);
        Ok(CollectionIdentity { name, uid, incarnation })
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        self.administer(Command::Drop(name.to_owned())).await.map(|_| ())
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        let (alias, collection) = (alias.to_owned(), collection.to_owned());
        self.administer(Command::Alias { alias, collection }).await.map(|_| ())
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        let collection = collection.to_owned();
        self.administer(Command::Block { collection, blocked }).await.map(|_| ())
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        let prefix = prefix.to_owned();
        let listed = self.blocking(move |file| read::list(file, &prefix)).await;
        listed.ok_or_else(shutting_down)?
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        self.administer(Command::Release(collection.to_owned())).await.map(|_| ())
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        Ok(None)
    }
}
