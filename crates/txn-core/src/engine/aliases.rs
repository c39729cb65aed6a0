//! Aliases by which collections were opened, and whether each still stands for the same one.
//!
//! A collection is used under its physical name. An alias that is moved to another index would
//! leave this process with the old one, and its commits with it. So a transaction that uses such a
//! collection asks the store what the alias stands for, at most once in a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::store::{CollectionIdentity, CollectionInfo, StoreError, StoreErrorKind};

/// The aliases of collections, by the physical names.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    opened: Mutex<BTreeMap<Arc<str>, OpenedBy>>,
}

/// By which aliases a collection was opened.
type OpenedBy = BTreeMap<Arc<str>, Opened>;

/// How a collection was opened by an alias.
#[derive(Debug)]
struct Opened {
    uid: Arc<str>,
    /// When the store was asked last.
    asked: Duration,
    /// The collection that the alias stands for now, if the alias was moved.
    instead: Option<String>,
}

impl Aliases {
    /// Notes what `asked` stood for when it was opened. The name of the collection itself is no
    /// alias.
    fn note(&self, asked: &str, info: &CollectionInfo, now: Duration) {
        let mut opened = self.opened.lock();
        for (name, aliases) in opened.iter_mut().filter(|(name, _)| **name != info.name) {
            if let Some(alias) = aliases.get_mut(asked) {
                tracing::warn!(alias = asked, old = %name, new = %info.name, "the alias was moved");
                alias.instead = Some(format!("{:?}", info.name));
            }
        }
        if *asked != *info.name {
            let uid = info.uid.clone();
            let entry = Opened { uid, asked: now, instead: None };
            opened.entry(info.name.clone()).or_default().insert(asked.into(), entry);
        }
    }

    fn is_empty(&self) -> bool {
        self.opened.lock().is_empty()
    }

    /// The aliases of a collection that were asked for longer ago than a lease. They count as asked
    /// for now.
    fn due(&self, collection: &str, now: Duration, lease: Duration) -> Vec<Arc<str>> {
        let mut opened = self.opened.lock();
        let aliases = opened.get_mut(collection).into_iter().flatten();
        let due = aliases.filter(|(_, opened)| now.saturating_sub(opened.asked) >= lease);
        due.map(|(alias, opened)| {
            opened.asked = now;
            alias.clone()
        })
        .collect()
    }

    fn answered(
        &self,
        collection: &str,
        alias: &str,
        answer: Result<CollectionIdentity, StoreError>,
    ) {
        let mut opened = self.opened.lock();
        let Some(known) = opened.get_mut(collection).and_then(|of| of.get_mut(alias)) else {
            return;
        };
        known.instead = match answer {
            Ok(found) if *found.name == *collection && found.uid == known.uid => None,
            Ok(found) => Some(format!("{:?}", found.name)),
            Err(error) if error.kind == StoreErrorKind::NotFound => Some("nothing".to_owned()),
            Err(error) if error.kind == StoreErrorKind::Misconfigured => {
                Some("several collections".to_owned())
            }
            // The store cannot say now: the last answer stays.
            Err(error) => {
                tracing::debug!(alias, %error, "asking what an alias stands for");
                return;
            }
        };
    }

    fn check(&self, collection: &str) -> Result<(), Error> {
        let opened = self.opened.lock();
        let aliases = opened.get(collection).into_iter().flatten();
        let mut moved =
            aliases.filter_map(|(alias, opened)| Some((alias, opened.instead.as_ref()?)));
        moved.next().map_or(Ok(()), |(alias, instead)| {
            Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "the alias {alias:?} stands for {instead} now, and this process opened it as {collection:?}: open the \
                     collection again, or restart the process (docs/moving-an-index.md says how an index is moved safely)"
                ),
            ))
        })
    }
}

impl Engine {
    /// Notes by which name a collection was opened.
    pub(crate) fn note_alias(&self, asked: &str, info: &CollectionInfo) {
        self.aliases.note(asked, info, self.now());
    }

    /// Whether the aliases by which collections were opened still stand for them. Asks the store
    /// for each alias at most once in a lease; a store that cannot say holds nothing up longer than
    /// a lease.
    pub(crate) async fn confirm_aliases(
        &self,
        collections: impl FnOnce() -> BTreeSet<Arc<str>>,
    ) -> Result<(), Error> {
        if self.aliases.is_empty() {
            return Ok(());
        }
        let lease = self.config.lease;
        for collection in collections() {
            for alias in self.aliases.due(&collection, self.now(), lease) {
                let identify = self.documents().identify(&alias);
                tokio::select! {
                    biased;
                    answer = identify => self.aliases.answered(&collection, &alias, answer),
                    () = self.config.clock.sleep(lease) => {}
                }
            }
            self.aliases.check(&collection)?;
        }
        Ok(())
    }
}
