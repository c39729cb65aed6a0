//! Collections with history: past versions of documents.

pub(crate) mod heads;
pub(crate) mod purge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use crate::engine::time::Time;
use txn_protocol::ids::CommitVersion;
use txn_store::Key;

/// The history settings of one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistorySettings {
    /// The collection of the heads and the past versions.
    pub(crate) collection: Arc<str>,
    /// The start of the history, since the Unix epoch.
    pub(crate) since: Duration,
    /// How long past versions are kept.
    pub(crate) retention: Duration,
}

/// Prefixes of ids: `h` for heads, `v` for past versions. The first version may have no commit.
impl HistorySettings {
    fn key(&self, of: &Key, id: String) -> Key {
        let key = Key::new(self.collection.clone(), id);
        match &of.routing {
            Some(routing) => key.routed(routing.clone()),
            None => key,
        }
    }

    /// The key of the head of a document.
    pub(crate) fn head(&self, of: &Key) -> Key {
        self.key(of, format!("h/{}", of.id))
    }

    /// The document and the commit of a past version. `None` for other keys.
    pub(crate) fn document(
        &self,
        of: &Arc<str>,
        past: &Key,
    ) -> Option<(Key, Option<CommitVersion>)> {
        let (commit, id) = past.id.strip_prefix("v/")?.split_once('/')?;
        let commit = match commit {
            FIRST => None,
            commit => Some(commit.parse().ok()?),
        };
        let key = Key::new(of.clone(), id);
        let routed = past.routing.clone().map(|routing| key.clone().routed(routing));
        Some((routed.unwrap_or(key), commit))
    }

    /// The key of a past version of a document.
    pub(crate) fn version(&self, of: &Key, commit: Option<CommitVersion>) -> Key {
        let commit = commit.map_or_else(|| FIRST.to_owned(), |commit| commit.compact().to_string());
        self.key(of, format!("v/{commit}/{}", of.id))
    }
}

/// Replaces the commit of a version that no transaction wrote.
const FIRST: &str = "first";

/// The histories of the collections that this process has opened.
pub(crate) struct Histories {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    table: Arc<Table>,
    /// By the name of the collection.
    opened: RwLock<BTreeMap<Arc<str>, Arc<HistorySettings>>>,
}

impl Histories {
    pub(in crate::engine) fn new(base: &Base) -> Self {
        let Base { context, store, time, table } = base.clone();
        Self { context, store, time, table, opened: RwLock::default() }
    }

    pub(crate) fn of(&self, collection: &str) -> Option<Arc<HistorySettings>> {
        self.opened.read().get(collection).cloned()
    }

    pub(crate) fn forget(&self, collection: &str) {
        self.opened.write().remove(collection);
    }
}
