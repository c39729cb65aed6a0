//! Collections that keep their past, and readers at a timestamp.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use crate::api::collection::{Codec, Collection, DocumentId};
use crate::api::domain::Domain;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::{History, overwritten, read_head};
use crate::engine::observe::ReadEntry;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, Result};
use crate::store::Key;
use txn_protocol::document::Image;
use txn_protocol::history::{Before, Head, Links};
use txn_protocol::ids::{AttemptId, CommitVersion};

/// How often a document is looked at that does not fit its history, before it is said that a client wrote it that keeps none.
const LOOKS: u32 = 8;

/// Reads what stood there at one moment of the past, without locks, in collections that keep it ([`Domain::keep_history`]).
///
/// Each transaction is shown whole or not at all, over any number of documents, calls, and collections: it is shown if its
/// commit tid is not later than the moment. Transactions composed into one commit ([`Config::groups`](crate::Config::groups))
/// have one commit tid.
///
/// What is shown need not have been the state of one moment of an ordering of all transactions: where clocks differ, a transaction
/// that only *read* what another one wrote may be shown without it (RESTBase design, "readers at a timestamp").
#[derive(Clone, Copy, Debug)]
pub struct ReaderAt<'a> {
    domain: &'a Domain,
    time: Duration,
}

impl Domain {
    /// Keeps, from now on, what transactions overwrite and delete in a collection, for `retention`, in a collection of its own beside
    /// it, called `<name>-history`. Idempotent, and for good: [`Domain::release_collection`] ends it.
    ///
    /// Call it where the collection is made. A process that opened the collection before keeps no history until it opens it again;
    /// what it overwrites is lost to readers at a timestamp, and they say so. What plain clients write has no version of its own.
    ///
    /// Costs for each document that a transaction writes: two writes of a small document beside it (its head), one write of
    /// what is overwritten, and two round trips before the commit. A document alone is no longer one conditional write. Heads stay,
    /// also those of deleted documents; past versions are dropped by [`Domain::purge_history`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if it is kept for another time already, or the collection for it cannot be made;
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a retention that is not longer than [`Config::max_drift`](crate::Config::max_drift).
    ///
    /// # Cancel safety
    /// Dropped half-way, it can be called again.
    pub async fn keep_history<C: Codec>(
        &self,
        collection: &Collection<C>,
        retention: Duration,
    ) -> Result<()> {
        let engine = &self.engine;
        if retention <= engine.config.max_drift {
            let drift = engine.config.max_drift;
            let message = format!(
                "a history of {retention:?} can never be read: keep it for more than {drift:?}"
            );
            return Err(Error::invalid(message));
        }
        let deadline = engine.deadline(engine.config.deadline);
        let kept = engine.keep_history(&collection.name, retention, &deadline).await;
        kept.map_err(AttemptError::into_error)
    }

    /// The latest moment that a reader can be at now, as the time since the Unix epoch: [`max_drift`](crate::Config::max_drift) before the
    /// wall clock of this process, or before the server's, whichever is earlier.
    #[must_use]
    pub fn latest_timestamp(&self) -> Duration {
        self.engine.settled_until()
    }

    /// Reads what stood there at a moment of the past, given as the time since the Unix epoch, such as the
    /// [`CommitVersion::unix_time`](crate::CommitVersion::unix_time) of a commit.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the moment is later than [`Domain::latest_timestamp`].
    pub fn at(&self, timestamp: Duration) -> Result<ReaderAt<'_>> {
        let latest = self.latest_timestamp();
        if timestamp > latest {
            let message = format!(
                "that moment cannot be read yet: a process whose clock is behind may still commit before it; ask again in {:?}",
                timestamp.saturating_sub(latest)
            );
            return Err(Error::invalid(message));
        }
        Ok(ReaderAt { domain: self, time: timestamp })
    }

    /// Drops past versions that no reader may ask for any more. Returns how many. For a task that runs now and then; several may run
    /// at once. A head of each document that was ever written stays.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the collection keeps no history; else as the store says.
    ///
    /// # Cancel safety
    /// Dropped half-way, it can be called again.
    pub async fn purge_history<C: Codec>(&self, collection: &Collection<C>) -> Result<u64> {
        let engine = &self.engine;
        let history = engine.history_of(&collection.name)?;
        let purged = engine.purge_history(&collection.name, &history).await;
        purged.map_err(AttemptError::into_error)
    }
}

impl ReaderAt<'_> {
    /// The moment, as the time since the Unix epoch.
    #[must_use]
    pub fn timestamp(&self) -> Duration {
        self.time
    }

    /// Reads a document as it stood then; `None` if it did not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the collection keeps no history, did not at that moment, or keeps it no longer;
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if a client that keeps no history overwrote what stood there then; [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if a
    /// transaction that may belong to that moment is not decided before the deadline; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does
    /// not answer in time.
    pub async fn get<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<C::Value>> {
        let values = self.get_many(collection, [id]).await?;
        values.into_iter().next().ok_or_else(|| Error::unavailable("the store gave no answer"))
    }

    /// Reads documents as they stood then: one answer per id, in order.
    ///
    /// # Errors
    /// As [`ReaderAt::get`].
    pub async fn get_many<C: Codec, I: Into<DocumentId>>(
        &self,
        collection: &Collection<C>,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Option<C::Value>>> {
        let keys: Vec<Key> = ids.into_iter().map(|id| collection.key(id)).collect();
        let engine = &self.domain.engine;
        let history = engine.history_of(&collection.name)?;
        engine.check_readable(&keys)?;
        engine.check_kept(&history, self.time)?;
        let deadline = engine.deadline(engine.config.deadline);
        let read = engine.read_at(&keys, &history, self.time, &deadline);
        let images =
            engine.within(engine.config.deadline, read).await.map_err(AttemptError::into_error)?;
        let decode =
            |(key, image): (&Key, Option<Image>)| Collection::<C>::decode(key, image.as_ref());
        keys.iter().zip(images).map(decode).collect()
    }
}

/// A document with its history, as they stand now.
struct Now {
    key: Key,
    document: ReadEntry,
    head: Option<(Head, Option<CommitVersion>)>,
}

/// What is known of a moment without looking further.
enum Known {
    /// This stood there.
    Is(Option<Image>),
    /// It is in the past versions.
    Past,
    /// Document and head do not belong together, or not yet.
    Torn,
}

impl Now {
    fn at(&self, time: Duration) -> Known {
        let observed = &self.document.observed;
        let stood = |tid: Option<CommitVersion>| tid.is_none_or(|tid| tid.unix_time() <= time);
        let before = Before { tid: observed.tid, image: observed.image.as_ref() };
        match &self.head {
            // Never written since its history began.
            None if observed.image.is_none() || stood(observed.tid) => {
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
                "the collection {collection:?} keeps no history: see Domain::keep_history"
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

    /// Documents with their heads. A holder that began later than that moment cannot commit before it.
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
            let read = |image: &Image| Ok::<_, Error>((read_head(&at, image)?, head.observed.tid));
            let head = head.observed.image.as_ref().map(read).transpose()?;
            now.push(Now { key, document, head });
        }
        Ok(now)
    }
}
