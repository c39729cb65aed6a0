//! Polls the server's documents during a run.
//!
//! The watch measures how long documents stay locked, and how much has to be recovered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use txn_core::store::fields;

use txn_sim::server::Server;

/// The interval of the polls.
const EVERY: Duration = Duration::from_millis(500);

/// The time for which one transaction locked one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongLock {
    /// The document, with its collection.
    pub document: String,
    /// The holder of the lock.
    pub holder: String,
    /// The duration of the lock, as far as it was seen.
    pub lasted: Duration,
}

#[derive(Debug, Default)]
struct Seen {
    /// The holders of locked documents. Each entry also has the first poll that showed the holder.
    held: BTreeMap<String, (String, Instant)>,
    /// Every lock that was seen, and its duration.
    locks: BTreeMap<(String, String), Duration>,
    /// Records that were open.
    open: BTreeSet<String>,
}

/// A poll of the server's documents every [`EVERY`].
#[derive(Debug)]
pub(crate) struct Watch {
    server: Arc<Server>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Starts now: earlier locks do not count.
    pub(crate) fn begin(server: &Arc<Server>) -> Self {
        let (server, seen) = (server.clone(), Arc::new(Mutex::new(Seen::default())));
        let (of_task, by_task) = (server.clone(), seen.clone());
        let task = tokio::spawn(async move {
            loop {
                look(&of_task, &mut by_task.lock());
                tokio::time::sleep(EVERY).await;
            }
        });
        Self { server, seen, task }
    }

    /// Whether no document is locked now.
    pub(crate) fn is_free(&self) -> bool {
        let mut seen = self.seen.lock();
        look(&self.server, &mut seen);
        seen.held.is_empty()
    }

    /// The locks that lasted longer than this.
    pub(crate) fn longer_than(&self, span: Duration) -> Vec<LongLock> {
        let seen = self.seen.lock();
        let long = seen.locks.iter().filter(|(_, lasted)| **lasted > span);
        long.map(|((document, holder), lasted)| {
            let (document, holder) = (document.clone(), holder.clone());
            LongLock { document, holder, lasted: *lasted }
        })
        .collect()
    }

    /// The number of locks and open records that were seen.
    pub(crate) fn work(&self) -> u64 {
        let seen = self.seen.lock();
        (seen.locks.len() + seen.open.len()) as u64
    }
}

fn look(server: &Server, seen: &mut Seen) {
    let now = Instant::now();
    let mut held = BTreeMap::new();
    for (collection, documents) in server.documents() {
        for (id, source) in documents {
            let text = |field: &str| {
                let document = serde_json::from_str::<serde_json::Value>(&source).ok()?;
                document.get(field)?.as_str().map(str::to_owned)
            };
            if source.contains(fields::TRANSACTION_TID)
                && let Some(holder) = text(fields::TRANSACTION_TID)
            {
                let document = format!("{collection}/{id}");
                let before = seen.held.get(&document).filter(|(before, _)| *before == holder);
                let since = before.map_or(now, |(_, since)| *since);
                let lasted = seen.locks.entry((document.clone(), holder.clone())).or_default();
                *lasted = (*lasted).max(now - since);
                held.insert(document, (holder, since));
            }
            if source.contains(fields::STATE)
                && let Some("pending" | "committed") = text(fields::STATE).as_deref()
            {
                seen.open.insert(id);
            }
        }
    }
    seen.held = held;
}
