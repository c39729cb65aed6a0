//! Histories of collections: registry entry, past versions, search by time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use txn_protocol::document::{Image, Stored, View};
use txn_protocol::format::Format;
use txn_protocol::history::{Ancestor, Content, Head, Keep, Kept, Links, PastVersion, Step};
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::domain::MakeOnce;

use crate::engine::Engine;
use crate::engine::admin::claims::IfMissing;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::pages::PAGE;
use crate::engine::store::settle_targets::Document;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::domain_document::{REGISTRY, RegistryDocument};
use crate::engine::table::format::unreadable;
use crate::error::{Error, ErrorKind};
use crate::store::{CollectionInfo, Filter, Key, Source};

/// The history settings of one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct History {
    /// The collection of the heads and the past versions.
    pub(crate) collection: Arc<str>,
    /// The start of the history, since the Unix epoch.
    pub(crate) since: Duration,
    /// How long past versions are kept.
    pub(crate) retention: Duration,
}

/// The registry entry of a history, under `history:<uid>`. The entry never changes.
#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(default)]
    format: Format,
    collection: String,
    since_ms: u64,
    retention_ms: u64,
}

/// The histories of the collections that this process has opened, by name.
#[derive(Debug, Default)]
pub(crate) struct Histories(RwLock<BTreeMap<Arc<str>, Arc<History>>>);

impl Histories {
    pub(crate) fn of(&self, collection: &str) -> Option<Arc<History>> {
        self.0.read().get(collection).cloned()
    }

    pub(crate) fn forget(&self, collection: &str) {
        self.0.write().remove(collection);
    }
}

/// Prefixes of ids: `h` for heads, `v` for past versions. The first version may have no tid.
impl History {
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
        let (tid, id) = past.id.strip_prefix("v/")?.split_once('/')?;
        let tid = match tid {
            FIRST => None,
            tid => Some(tid.parse().ok()?),
        };
        let key = Key::new(of.clone(), id);
        let routed = past.routing.clone().map(|routing| key.clone().routed(routing));
        Some((routed.unwrap_or(key), tid))
    }

    /// The key of a past version of a document.
    pub(crate) fn version(&self, of: &Key, tid: Option<CommitVersion>) -> Key {
        let tid = tid.map_or_else(|| FIRST.to_owned(), |tid| tid.compact().to_string());
        self.key(of, format!("v/{tid}/{}", of.id))
    }
}

/// Replaces the tid of a version that no transaction wrote.
const FIRST: &str = "first";

/// The mappings of a history collection: no search uses its fields.
const UNSEARCHED: &str = r#"{"dynamic":false}"#;

/// The key of the registry entry for a collection's history.
pub(crate) fn history_entry(uid: &str) -> Key {
    Key::new(REGISTRY, format!("history:{uid}"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Parses the head that was read under this key.
pub(crate) fn read_head(key: &Key, image: &Image) -> Result<Head, Error> {
    Head::parse(image).map_err(|fault| unreadable(key, image.as_str(), &fault))
}

impl Engine {
    /// Starts the history of a collection.
    ///
    /// Each process that opens the collection from now on keeps the overwritten versions.
    pub(crate) async fn enable_history(
        &self,
        name: &str,
        retention: Duration,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let opened = self.open_collection(name, IfMissing::Fail, deadline).await?;
        let collection = format!("{}-history", opened.name);
        let unsearched = IfMissing::CreateForSystem(UNSEARCHED);
        let past = self.open_collection(&collection, unsearched, deadline).await?;
        let key = history_entry(&opened.uid);
        if self.read_registry(&key, deadline).await?.is_none() {
            self.check_free(&past.name, deadline).await?;
        }
        // The history starts now. Content that was committed before counts as the first version.
        let entry = Entry {
            format: Format::default(),
            collection: past.name.to_string(),
            since_ms: self.unix_millis(),
            retention_ms: millis(retention),
        };
        let source = serde_json::to_string(&entry).map_err(|e| Error::invalid(e.to_string()))?;
        let (place, source) = (RegistryDocument(&key), Source::from(source));
        let settled =
            self.settle(&place, &MakeOnce, (None, None), |_| Ok(source.clone()), deadline);
        settled.await.map_err(|e| e.while_doing("begin the history of the collection"))?;
        self.learn_history(&opened, deadline).await?;
        match self.histories.of(&opened.name) {
            Some(history) if millis(history.retention) == millis(retention) => Ok(()),
            Some(history) => {
                let message = format!(
                    "the history of {name:?} is kept for {:?} already, which does not change",
                    history.retention
                );
                Err(Error::new(ErrorKind::Misconfigured, message).into())
            }
            None => Err(Error::damaged("the history that was begun is gone").at(&key).into()),
        }
    }

    /// Fails if the collection for a history is not empty.
    ///
    /// Entries of an earlier history count, too.
    async fn check_free(&self, name: &str, deadline: &Deadline) -> Result<(), AttemptError> {
        self.refresh(name, deadline).await?;
        let mut pages = self.pages(name, Filter::All, PAGE);
        while let Some(documents) = self.next_page(&mut pages, deadline).await? {
            if let Some((key, ..)) = documents.first() {
                let message = format!(
                    "the history would be kept in the collection {name:?}, which is not empty: delete or rename that one"
                );
                return Err(Error::new(ErrorKind::Misconfigured, message).at(key).into());
            }
        }
        Ok(())
    }

    /// Loads the history settings of a collection that is being opened.
    pub(crate) async fn learn_history(
        &self,
        opened: &CollectionInfo,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let key = history_entry(&opened.uid);
        let Some((_, source)) = self.read_registry(&key, deadline).await? else {
            self.histories.forget(&opened.name);
            return Ok(());
        };
        let entry: Entry = serde_json::from_str(&source)
            .map_err(|e| unreadable(&key, &source, &format!("it cannot be read: {e}")))?;
        if !entry.format.is_known() {
            return Err(unreadable(&key, &source, "").into());
        }
        let history = History {
            collection: entry.collection.into(),
            since: Duration::from_millis(entry.since_ms),
            retention: Duration::from_millis(entry.retention_ms),
        };
        self.histories.0.write().insert(opened.name.clone(), Arc::new(history));
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
            let settled =
                self.settle(&Document(&key), &Keep, View::Absent, content, deadline).await;
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
        history: &History,
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
        history: &History,
        links: Links,
        time: Duration,
        deadline: &Deadline,
    ) -> Result<Option<Image>, AttemptError> {
        let version = self.locate(key, history, links, time, deadline).await?;
        match version.kept {
            Kept::Apart => {}
            Kept::Absent => return Ok(None),
            Kept::Lost => return Err(overwritten(key, version.tid).into()),
        }
        match self.past_version(key, history, version, deadline).await?.content {
            Content::Was(image) => Ok(Some(image)),
            Content::Absent => Ok(None),
            Content::Lost => Err(overwritten(key, version.tid).into()),
        }
    }

    async fn past_version(
        &self,
        key: &Key,
        history: &History,
        version: Ancestor,
        deadline: &Deadline,
    ) -> Result<PastVersion, AttemptError> {
        let at = history.version(key, version.tid);
        let keys = std::slice::from_ref(&at);
        let views = self.read_documents(keys, ReadPreference::Primary, deadline).await?;
        match views.first() {
            Some(View::Present { stored, source, .. }) => Ok(PastVersion::parse(&stored.image)
                .map_err(|fault| unreadable(&at, source, &fault))?),
            Some(View::Absent) | None => Err(no_longer_kept(key).into()),
        }
    }
}

/// The error for a version whose content is unknown.
pub(crate) fn overwritten(key: &Key, version: Option<CommitVersion>) -> Error {
    let which = version.map_or_else(|| "the first".to_owned(), |tid| tid.to_string());
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
