//! Collections that keep their history, and readers at a timestamp.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, try_join_all};

use crate::api::collection::{Codec, Collection, DocumentId};
use crate::api::domain::Domain;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::heads::{History, overwritten, read_head};
use crate::engine::store::observe::ReadEntry;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, Result};
use crate::store::Key;
use txn_protocol::document::Image;
use txn_protocol::history::{Before, Head, Links};
use txn_protocol::ids::{AttemptId, CommitVersion};

/// The maximum number of reads of a document that contradicts its history.
///
/// After them the reader reports a write by a client that keeps no history.
const LOOKS: u32 = 8;

/// Reads collections as of one timestamp, without locks.
///
/// [`Domain::enable_history`] lets a collection keep its history. Each transaction is visible as a
/// whole or not at all, over any number of documents, calls and collections. A transaction is
/// visible if its commit version is not later than the timestamp. The members of a group
/// ([`Config::group_commit`](crate::Config::group_commit)) share one commit version.
///
/// The result need not be a state of one serial order of all transactions. If clocks differ, a
/// transaction that only *read* a write may be visible without the writing transaction (RESTBase
/// design, "readers at a timestamp").
#[derive(Clone, Copy, Debug)]
pub struct SnapshotReader<'a> {
    domain: &'a Domain,
    time: Duration,
}

impl Domain {
    /// Keeps the past versions of a collection for `retention`.
    ///
    /// A second collection, `<name>-history`, stores the versions that transactions overwrite and
    /// delete from now on. The call is idempotent. [`Admin::release_collection`](crate::Admin::release_collection) ends the history.
    ///
    /// Call this method where the collection is created. A process that opened the collection
    /// earlier keeps no history until the process opens the collection again. Versions that such a
    /// process overwrites are lost to readers at a timestamp, which then report an error. Writes of
    /// plain clients have no version of their own.
    ///
    /// For each document, a transaction also writes a small document (the head) twice, and the
    /// overwritten version once. The commit takes two more round trips. A transaction of one
    /// document is no longer one conditional write. Heads remain, even for deleted documents.
    /// [`Domain::purge_history`] drops past versions.
    ///
    /// # Errors
    /// - [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if the collection has
    ///   another retention already, or the history collection cannot be created.
    /// - [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `retention` is not longer than
    ///   [`Config::max_drift`](crate::Config::max_drift).
    ///
    /// # Cancel safety
    /// After a dropped future, the call can be repeated.
    pub async fn enable_history<C: Codec>(
        &self,
        collection: &Collection<C>,
        retention: Duration,
    ) -> Result<()> {
        self.enable_history_of(&collection.name, retention).await
    }

    /// Returns the latest timestamp that can be read now.
    ///
    /// The result is the time since the Unix epoch: the wall clock of this process or of the
    /// server, whichever is earlier, minus [`max_drift`](crate::Config::max_drift).
    #[must_use]
    pub fn latest_timestamp(&self) -> Duration {
        self.engine.settled_until()
    }

    /// Returns a reader at a timestamp.
    ///
    /// `timestamp` is the time since the Unix epoch, such as the
    /// [`CommitVersion::unix_time`](crate::CommitVersion::unix_time) of a commit.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `timestamp` is later than
    /// [`Domain::latest_timestamp`].
    pub fn snapshot_at(&self, timestamp: Duration) -> Result<SnapshotReader<'_>> {
        let latest = self.latest_timestamp();
        if timestamp > latest {
            let message = format!(
                "that moment cannot be read yet: a process whose clock is behind may still commit before it; ask again in {:?}",
                timestamp.saturating_sub(latest)
            );
            return Err(Error::invalid(message));
        }
        Ok(SnapshotReader { domain: self, time: timestamp })
    }

    /// Drops expired past versions, and returns their number.
    ///
    /// Run this call from time to time. Several calls may run at once. The head of each document
    /// that was ever written remains.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the collection keeps no history.
    /// Otherwise the errors of the store.
    ///
    /// # Cancel safety
    /// After a dropped future, the call can be repeated.
    pub async fn purge_history<C: Codec>(&self, collection: &Collection<C>) -> Result<u64> {
        self.purge_history_of(&collection.name).await
    }

    fn purge_history_of<'a>(&'a self, collection: &'a Arc<str>) -> BoxFuture<'a, Result<u64>> {
        let engine = &self.engine;
        Box::pin(async move {
            let history = engine.history_of(collection)?;
            let purged = engine.purge_history(collection, &history).await;
            purged.map_err(AttemptError::into_error)
        })
    }

    fn enable_history_of<'a>(
        &'a self,
        collection: &'a str,
        retention: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        let engine = &self.engine;
        Box::pin(async move {
            let drift = engine.config.max_drift;
            if retention <= drift {
                let message = format!(
                    "a history of {retention:?} can never be read: keep it for more than {drift:?}"
                );
                return Err(Error::invalid(message));
            }
            let deadline = engine.deadline(engine.config.timeout);
            let kept = engine.enable_history(collection, retention, &deadline).await;
            kept.map_err(AttemptError::into_error)
        })
    }
}

impl SnapshotReader<'_> {
    /// Returns the timestamp, as the time since the Unix epoch.
    #[must_use]
    pub fn timestamp(&self) -> Duration {
        self.time
    }

    /// Reads a document as of the timestamp; `None` without a document.
    ///
    /// # Errors
    /// - [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the collection keeps no history, or
    ///   the timestamp is before its start or older than its retention.
    /// - [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if a client that keeps no history
    ///   overwrote the content.
    /// - [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if a transaction that may belong to
    ///   the timestamp is undecided at the deadline.
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not answer in
    ///   time.
    pub async fn get<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<C::Value>> {
        let values = self.get_many(collection, [id]).await?;
        values.into_iter().next().ok_or_else(|| Error::unavailable("the store gave no answer"))
    }

    /// Reads documents as of the timestamp: one answer per id, in order.
    ///
    /// # Errors
    /// As [`SnapshotReader::get`].
    pub async fn get_many<C: Codec, I: Into<DocumentId>>(
        &self,
        collection: &Collection<C>,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Option<C::Value>>> {
        let keys: Vec<Key> = ids.into_iter().map(|id| collection.key(id)).collect();
        let images = self.images(&collection.name, &keys).await?;
        let decode =
            |(key, image): (&Key, Option<Image>)| Collection::<C>::decode(key, image.as_ref());
        keys.iter().zip(images).map(decode).collect()
    }

    fn images<'a>(
        &'a self,
        collection: &'a str,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Image>>>> {
        let engine = &self.domain.engine;
        let timeout = engine.config.timeout;
        Box::pin(async move {
            let history = engine.history_of(collection)?;
            engine.check_readable(keys)?;
            engine.check_kept(&history, self.time)?;
            let deadline = engine.deadline(timeout);
            let read = engine.read_at(keys, &history, self.time, &deadline);
            engine.within(timeout, read).await.map_err(AttemptError::into_error)
        })
    }
}

/// A document with its history head, as currently stored.
struct Now {
    key: Key,
    document: ReadEntry,
    head: Option<(Head, Option<CommitVersion>)>,
}

/// The content at a timestamp, by document and head.
enum Known {
    /// The current document is the content.
    Is(Option<Image>),
    /// The content is in the past versions.
    Past,
    /// Document and head do not match, or do not match yet.
    Torn,
}

impl Now {
    fn at(&self, time: Duration) -> Known {
        let observed = &self.document.observed;
        let stood = |tid: Option<CommitVersion>| tid.is_none_or(|tid| tid.unix_time() <= time);
        let before =
            Before { commit_version: observed.commit_version, image: observed.image.as_ref() };
        match &self.head {
            // No transaction has written the document since its history began.
            None if observed.image.is_none() || stood(observed.commit_version) => {
                Known::Is(observed.image.clone())
            }
            None => Known::Torn,
            Some((_, tid)) if !stood(*tid) => Known::Past,
            Some((head, tid)) if before.is_of(head, *tid) => Known::Is(observed.image.clone()),
            Some(_) => Known::Torn,
        }
    }
}

impl Engine {
    fn history_of(&self, collection: &str) -> Result<Arc<History>> {
        self.histories.of(collection).ok_or_else(|| {
            Error::invalid(format!(
                "the collection {collection:?} keeps no history: see Domain::enable_history"
            ))
        })
    }

    fn check_kept(&self, history: &History, time: Duration) -> Result<()> {
        let oldest = self.utc().saturating_sub(history.retention);
        if time < history.since {
            return Err(Error::invalid(
                "the history of the collection began later than that moment",
            ));
        }
        if time < oldest {
            let message = format!("the history is kept for {:?} only", history.retention);
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    async fn read_at(
        &self,
        keys: &[Key],
        history: &History,
        time: Duration,
        deadline: &Deadline,
    ) -> Result<Vec<Option<Image>>, AttemptError> {
        let mut images: BTreeMap<Key, Option<Image>> = BTreeMap::new();
        let mut past = Vec::new();
        let mut open: Vec<Key> = keys.to_vec();
        open.sort();
        open.dedup();
        let mut backoff = self.backoff();
        for look in 1.. {
            let mut torn = Vec::new();
            for now in self.as_they_stand(open, history, time, deadline).await? {
                match (now.at(time), &now.head) {
                    (Known::Is(image), _) => drop(images.insert(now.key, image)),
                    (Known::Past, Some((head, _))) => {
                        past.push((now.key, head.links.clone()));
                    }
                    (Known::Torn, head) if look == LOOKS => {
                        let tid = head.as_ref().and_then(|(_, tid)| *tid);
                        return Err(overwritten(&now.key, tid).into());
                    }
                    (Known::Past | Known::Torn, _) => torn.push(now.key),
                }
            }
            let Some(first) = torn.first() else { break };
            let reason = WaitReason::Changing(first.clone());
            self.pause(deadline, &mut backoff, reason).await?;
            open = torn;
        }
        let look_back = |(key, links): (Key, Links)| async move {
            let image = self.look_back(&key, history, links, time, deadline).await?;
            Ok::<_, AttemptError>((key, image))
        };
        images.extend(try_join_all(past.into_iter().map(look_back)).await?);
        Ok(keys.iter().map(|key| images.get(key).cloned().flatten()).collect())
    }

    /// Reads documents with their heads.
    ///
    /// A holder that began after the timestamp cannot commit before the timestamp, so the read does
    /// not wait for that holder.
    async fn as_they_stand(
        &self,
        keys: Vec<Key>,
        history: &History,
        time: Duration,
        deadline: &Deadline,
    ) -> Result<Vec<Now>, AttemptError> {
        let both: Vec<Key> = keys.iter().flat_map(|key| [key.clone(), history.head(key)]).collect();
        let matters = |holder: AttemptId| holder.unix_time() <= time;
        let mut entries = self.read_decided(&both, matters, deadline).await?.into_iter();
        let mut now = Vec::with_capacity(keys.len());
        for key in keys {
            let (Some(document), Some(head)) = (entries.next(), entries.next()) else { break };
            let at = history.head(&key);
            let read = |image: &Image| {
                Ok::<_, Error>((read_head(&at, image)?, head.observed.commit_version))
            };
            let head = head.observed.image.as_ref().map(read).transpose()?;
            now.push(Now { key, document, head });
        }
        Ok(now)
    }
}
