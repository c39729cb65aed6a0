//! Past versions of documents: registry entry, storage, and search by time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

use txn_protocol::document::{Image, Stored, View};
use txn_protocol::format::Format;
use txn_protocol::history::{Ancestor, Content, Head, Keep, Kept, Links, PastVersion, Step};
use txn_protocol::ids::CommitVersion;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::{Histories, HistorySettings};
use crate::engine::store::document_target::Document;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::REGISTRY;
use crate::engine::table::format::unreadable;
use crate::error::Error;
use txn_store::{CollectionInfo, Key};

/// The registry entry of a history, under `history:<uid>`. The entry never changes.
#[derive(Serialize, Deserialize)]
pub(in crate::engine) struct HistoryEntry {
    #[serde(default)]
    pub(in crate::engine) format: Format,
    pub(in crate::engine) collection: String,
    pub(in crate::engine) since_ms: u64,
    pub(in crate::engine) retention_ms: u64,
}

/// The key of the registry entry for a collection's history.
pub(crate) fn history_entry(uid: &str) -> Key {
    Key::new(REGISTRY, format!("history:{uid}"))
}

/// Parses the head that was read under this key.
pub(crate) fn read_head(key: &Key, image: &Image) -> Result<Head, Error> {
    Head::parse(image).map_err(|fault| unreadable(key, image.as_str(), &fault))
}

impl Histories {
    /// Loads the history settings of a collection that is being opened.
    pub(crate) async fn learn_history(
        &self,
        opened: &CollectionInfo,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let key = history_entry(&opened.uid);
        let Some((_, source)) = self.table.read_registry(&key, deadline).await? else {
            self.forget(&opened.name);
            return Ok(());
        };
        let entry: HistoryEntry = serde_json::from_str(&source)
            .map_err(|e| unreadable(&key, &source, &format!("it cannot be read: {e}")))?;
        if !entry.format.is_known() {
            return Err(unreadable(&key, &source, "").into());
        }
        let history = HistorySettings {
            collection: entry.collection.into(),
            since: Duration::from_millis(entry.since_ms),
            retention: Duration::from_millis(entry.retention_ms),
        };
        self.opened.write().insert(opened.name.clone(), Arc::new(history));
        Ok(())
    }

    /// Keeps past versions. Returns once each is acknowledged, even if another process wrote it.
    pub(crate) async fn keep_versions(
        &self,
        versions: Vec<(Key, Image)>,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let keep = |(key, image): (Key, Image)| async move {
            let source = Stored { image, ..Stored::default() }.encode();
            let content = |_: &View| Ok(source.clone());
            let settled = self
                .store
                .settle(
                    &Document { store: &self.store, key: &key },
                    &Keep,
                    View::Absent,
                    content,
                    deadline,
                )
                .await;
            settled.map(drop).map_err(|e| e.while_doing("keep what is overwritten"))
        };
        try_join_all(versions.into_iter().map(keep)).await.map(drop)
    }

    /// Finds the version of a document at `time`.
    ///
    /// The search follows the links from a later version.
    pub(crate) async fn locate(
        &self,
        key: &Key,
        history: &HistorySettings,
        mut links: Links,
        time: Duration,
        deadline: &Deadline,
    ) -> Result<Ancestor, AttemptError> {
        loop {
            match links.step(time).ok_or_else(|| not_known(key))? {
                Step::Found(version) => return Ok(version),
                Step::Look(version) => {
                    links = self.past_version(key, history, version, deadline).await?.links;
                }
            }
        }
    }

    /// Reads the content of a document at `time`.
    ///
    /// The search follows the links from a later version.
    pub(crate) async fn look_back(
        &self,
        key: &Key,
        history: &HistorySettings,
        links: Links,
        time: Duration,
        deadline: &Deadline,
    ) -> Result<Option<Image>, AttemptError> {
        let version = self.locate(key, history, links, time, deadline).await?;
        match version.kept {
            Kept::Apart => {}
            Kept::Absent => return Ok(None),
            Kept::Lost => return Err(overwritten(key, version.commit).into()),
        }
        match self.past_version(key, history, version, deadline).await?.content {
            Content::Was(image) => Ok(Some(image)),
            Content::Absent => Ok(None),
            Content::Lost => Err(overwritten(key, version.commit).into()),
        }
    }

    async fn past_version(
        &self,
        key: &Key,
        history: &HistorySettings,
        version: Ancestor,
        deadline: &Deadline,
    ) -> Result<PastVersion, AttemptError> {
        let at = history.version(key, version.commit);
        let keys = std::slice::from_ref(&at);
        let views = self.store.read_documents(keys, ReadPreference::Primary, deadline).await?;
        match views.first() {
            Some(View::Present { stored, source, .. }) => Ok(PastVersion::parse(&stored.image)
                .map_err(|fault| unreadable(&at, source, &fault))?),
            Some(View::Absent) | None => Err(no_longer_kept(key).into()),
        }
    }
}

/// The error for a version whose content is unknown.
pub(crate) fn overwritten(key: &Key, version: Option<CommitVersion>) -> Error {
    let which = version.map_or_else(|| "the first".to_owned(), |commit| commit.to_string());
    let message = format!(
        "the content at that time is unknown: a client without history overwrote the version {which}"
    );
    Error::damaged(message).at(key)
}

fn not_known(key: &Key) -> Error {
    let message = "the content at that time is unknown: a client without history wrote the document later, before the first client with history";
    Error::damaged(message).at(key)
}

fn no_longer_kept(key: &Key) -> Error {
    Error::invalid("the content at that time is no longer kept").at(key)
}
