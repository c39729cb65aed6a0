//! Aliases by which collections were opened, and their present targets.
//!
//! The engine uses a collection under its physical name. If an alias is moved to another index,
//! this process would commit to the old index. So a transaction that uses such a collection asks
//! the store for the target of the alias, at most once per lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::store::store_access::StoreAccess;
use crate::error::{Error, ErrorKind};
use txn_store::{CollectionIdentity, CollectionInfo, StoreError, StoreErrorKind};

/// The aliases of opened collections, by physical name.
pub(crate) struct Aliases {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    opened: Mutex<BTreeMap<Arc<str>, OpenedBy>>,
}

/// The aliases of one collection.
type OpenedBy = BTreeMap<Arc<str>, Opened>;

/// An alias through which a collection was opened.
#[derive(Debug)]
struct Opened {
    uid: Arc<str>,
    /// When the store was last asked, on the monotonic clock.
    asked: Duration,
    /// The current target of a moved alias, as text for the error.
    instead: Option<String>,
}

impl Aliases {
    pub(in crate::engine) fn new(base: &Base) -> Self {
        let Base { context, store, .. } = base.clone();
        Self { context, store, opened: Mutex::default() }
    }

    /// Notes the target of `asked` at the open. A collection's own name is no alias.
    pub(crate) fn note_alias(&self, asked: &str, info: &CollectionInfo) {
        let now = self.context.now();
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

    /// Returns the aliases whose last check is a lease old. The returned aliases count as checked
    /// now.
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
            // The store cannot answer now, so the last answer stays.
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

    /// Fails if an alias no longer points to the opened collection.
    ///
    /// Asks the store for each alias at most once per lease. A store that does not answer delays
    /// the caller by at most one lease per alias.
    pub(crate) async fn confirm_aliases(
        &self,
        collections: impl FnOnce() -> BTreeSet<Arc<str>>,
    ) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let lease = self.context.config.lease;
        for collection in collections() {
            for alias in self.due(&collection, self.context.now(), lease) {
                let identify = self.store.documents().identify(&alias);
                tokio::select! {
                    biased;
                    answer = identify => self.answered(&collection, &alias, answer),
                    () = self.context.config.clock.sleep(lease) => {}
                }
            }
            self.check(&collection)?;
        }
        Ok(())
    }
}
