//! The registry of processes: one document for each process of the domain.
//!
//! A process renews its document on the turns of its janitor task. The documents are hints for
//! operators, so a lost or outdated one harms nothing.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::deadline::Deadline;
use crate::engine::signals::contention::{ContentionLog, LockWait, PresentWait};
use crate::engine::signals::process_entry::ProcessEntry;
use crate::engine::store::pages::PAGE;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::{REGISTRY, Table};
use crate::engine::time::Time;
use txn_store::{Filter, Key, Outcome, Read, Source, Version, Write, WriteOp};

/// How often an elected janitor drops the documents of dead processes.
const SWEEP: Duration = Duration::from_secs(600);

/// How long an ending process waits for the removal of its entry.
const LEAVING: Duration = Duration::from_secs(1);

/// The maximum number of waits in the document of one process.
const MOST_WRITTEN: usize = 500;

/// How long waits are kept after their last change, in milliseconds.
const WAITS_KEPT_MS: u64 = 24 * 3_600_000;

/// The last waits of one process, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessWaits {
    pub(crate) node: String,
    pub(crate) process: String,
    pub(crate) written_ms: u64,
    /// The newest wait comes first.
    pub(crate) waits: Vec<LockWait>,
    /// The number of all waits of the process at the write.
    pub(crate) total: u64,
    /// The present waits at the time of the write, longest first.
    pub(crate) present: Vec<PresentWait>,
}

/// A document of this part in the registry.
pub(crate) enum Signal {
    Process(ProcessEntry),
    Waits(ProcessWaits),
    /// Waits that cannot be read.
    UnreadableWaits,
}

/// The documents of this process, and those of all processes.
pub(crate) struct Processes {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    table: Arc<Table>,
    contention: Arc<ContentionLog>,
    host: String,
    program: String,
    own: Mutex<OwnDocuments>,
}

/// The documents of this process.
#[derive(Default)]
struct OwnDocuments {
    /// The start of the process, in milliseconds since the Unix epoch.
    since_ms: Option<u64>,
    entry: Option<Owned>,
    waits: Option<Owned>,
    /// The number of all waits at the last write.
    written: u64,
    /// Whether the last write had present waits.
    has_written_present: bool,
    /// When this process last dropped the documents of dead processes. By the monotonic clock.
    swept: Option<Duration>,
}

/// A document of this process in the registry.
struct Owned {
    key: Key,
    /// The version of the last acknowledged write; `None` after any other answer.
    version: Option<Version>,
}

impl Processes {
    pub(in crate::engine) fn new(base: &Base, contention: Arc<ContentionLog>) -> Self {
        let Base { context, store, time, table } = base.clone();
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(|path| path.file_name());
        let program = program.map(|name| name.to_string_lossy().into_owned());
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        let own = Mutex::default();
        let program = program.unwrap_or_default();
        Self { context, store, time, table, contention, host, program, own }
    }

    /// Writes the entry of this process, and its waits if configured.
    ///
    /// A failed write is repeated on the next turn.
    pub(crate) async fn renew(&self) {
        let mut own = self.own.lock().await;
        let since_ms = *own.since_ms.get_or_insert_with(|| self.time.unix_millis());
        let entry = self.entry(since_ms);
        // After a jump of the clocks the process has another node. The entry of the earlier node
        // may belong to a copy of this process, so it stays until a janitor drops it.
        let key = self.table.process_key(&entry.node);
        if let Ok(source) = serde_json::to_string(&entry) {
            self.write(&mut own.entry, key, source.into()).await;
        }
        self.write_waits(&mut own, &entry).await;
    }

    async fn write_waits(&self, own: &mut OwnDocuments, entry: &ProcessEntry) {
        if !self.context.config.write_contention {
            return;
        }
        let present = self.contention.present(MOST_WRITTEN);
        let has_present = !present.is_empty();
        let is_unchanged = self.contention.total() == own.written;
        // A wait that goes on is written again, so that its time is current.
        if is_unchanged && !has_present && !own.has_written_present {
            return;
        }
        let (waits, total) = self.contention.last(MOST_WRITTEN);
        let waits = ProcessWaits {
            node: entry.node.clone(),
            process: entry.process.clone(),
            written_ms: entry.renewed_ms,
            waits,
            total,
            present,
        };
        if let Ok(source) = serde_json::to_string(&waits) {
            let key = self.table.contention_key(&entry.node);
            if self.write(&mut own.waits, key, source.into()).await {
                (own.written, own.has_written_present) = (total, has_present);
            }
        }
    }

    fn entry(&self, since_ms: u64) -> ProcessEntry {
        let config = &self.context.config;
        let interval = config.janitor_interval.unwrap_or_default();
        ProcessEntry {
            node: self.node(),
            host: self.host.clone(),
            pid: std::process::id(),
            program: self.program.clone(),
            process: config.process_name.clone(),
            application: config.application_name.clone(),
            library: env!("CARGO_PKG_VERSION").to_owned(),
            since_ms,
            renewed_ms: self.time.unix_millis(),
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            metrics_address: config.metrics_address.clone(),
            writes_contention: config.write_contention,
            clock_ahead_ms: self.time.clock_ahead_ms(),
            ..ProcessEntry::default()
        }
    }

    /// Writes a document of this process. Returns whether the write is acknowledged.
    async fn write(&self, owned: &mut Option<Owned>, key: Key, source: Source) -> bool {
        if owned.as_ref().is_none_or(|owned| owned.key != key) {
            *owned = Some(Owned { key: key.clone(), version: None });
        }
        let Some(owned) = owned else { return false };
        let op = match owned.version.take() {
            Some(version) => WriteOp::Replace(source, version),
            None => match self.read(&key).await {
                Some(Read::Found { version, .. }) => WriteOp::Replace(source, version),
                Some(Read::Absent) => WriteOp::Create(source),
                Some(Read::MissingCollection | Read::Unavailable(_)) | None => return false,
            },
        };
        match self.store.write_one(Write::new(key, op)).await {
            Outcome::Applied(version) => owned.version = Some(version),
            outcome => {
                tracing::debug!(?outcome, "the entry of this process was not written");
            }
        }
        owned.version.is_some()
    }

    async fn read(&self, key: &Key) -> Option<Read> {
        self.store.documents().read_primary(std::slice::from_ref(key)).await.into_iter().next()
    }

    /// Removes this process's entry at shutdown, and writes its last waits.
    ///
    /// The shutdown is an orderly one.
    ///
    /// The call takes at most one second. A remaining entry is dropped by a janitor later.
    pub(crate) async fn leave(&self) {
        let leave = async {
            let mut own = self.own.lock().await;
            let Some(Owned { key, .. }) = own.entry.take() else { return };
            let entry = self.entry(0);
            self.write_waits(&mut own, &entry).await;
            if let Some(Read::Found { version, .. }) = self.read(&key).await {
                self.store.write_one(Write::new(key, WriteOp::Delete(version))).await;
            }
        };
        tokio::select! {
            biased;
            () = leave => {}
            () = self.context.config.clock.sleep(LEAVING) => {}
        }
    }

    /// Drops the documents of dead processes, at most once in ten minutes.
    ///
    /// A process that is alive writes its document again.
    pub(crate) async fn sweep(&self) -> Result<(), AttemptError> {
        let now = self.context.now();
        let mut own = self.own.lock().await;
        if own.swept.is_some_and(|swept| now.saturating_sub(swept) < SWEEP) {
            return Ok(());
        }
        own.swept = Some(now);
        drop(own);
        let deadline = self.context.deadline(self.context.config.timeout);
        let present = self.time.unix_millis();
        let mut dead = Vec::new();
        self.scan(&deadline, |key, version, signal| {
            let (changed, kept) = match signal {
                Some(Signal::Process(entry)) => (entry.renewed_ms, entry.kept_for_ms()),
                Some(Signal::Waits(waits)) => (waits.written_ms, WAITS_KEPT_MS),
                Some(Signal::UnreadableWaits) | None => return,
            };
            if present.saturating_sub(changed) > kept {
                dead.push(Write::new(key, WriteOp::Delete(version)));
            }
        })
        .await?;
        if !dead.is_empty() {
            cov_mark::hit!(entries_of_dead_processes_are_dropped);
            self.store.write_all(&dead).await;
        }
        Ok(())
    }

    /// The id of this process in the registry.
    pub(crate) fn node(&self) -> String {
        self.context.ids.node().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The keys of all documents of this part in the domain.
    pub(crate) async fn keys(&self, deadline: &Deadline) -> Result<Vec<Key>, AttemptError> {
        self.store.refresh(REGISTRY, deadline).await?;
        let mut keys = Vec::new();
        self.scan(deadline, |key, _, _| keys.push(key)).await?;
        Ok(keys)
    }

    /// Reads the documents of all processes, and refreshes the registry first.
    pub(crate) async fn all(&self, deadline: &Deadline) -> Result<Vec<Signal>, AttemptError> {
        self.store.refresh(REGISTRY, deadline).await?;
        let mut all = Vec::new();
        self.scan(deadline, |_, _, signal| all.extend(signal)).await?;
        Ok(all)
    }

    async fn scan(
        &self,
        deadline: &Deadline,
        mut visit: impl FnMut(Key, Version, Option<Signal>),
    ) -> Result<(), AttemptError> {
        let (process, contention) = (self.table.process_key(""), self.table.contention_key(""));
        let mut pages = self.store.pages(REGISTRY, Filter::All, PAGE);
        while let Some(documents) = self.store.next_page(&mut pages, deadline).await? {
            for (key, version, source) in documents {
                if key.id.starts_with(&*process.id) {
                    let entry = ProcessEntry::parse(&source).map(Signal::Process);
                    visit(key, version, entry);
                } else if key.id.starts_with(&*contention.id) {
                    let waits = serde_json::from_str(&source).map(Signal::Waits);
                    visit(key, version, Some(waits.unwrap_or(Signal::UnreadableWaits)));
                }
            }
        }
        Ok(())
    }
}
