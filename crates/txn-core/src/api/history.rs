//! Collections that keep their history, and readers at a timestamp.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::api::collection::{Codec, Collection, DocumentId};
use crate::api::domain::Domain;
use crate::attempt::nesting::enclosing;
use crate::engine::attempt_error::AttemptError;
use crate::error::{Error, Result};
use txn_protocol::document::Image;
use txn_store::Key;

/// Reads collections as of one timestamp, without locks.
///
/// [`History::enable`] lets a collection keep its history. Each transaction is visible as a
/// whole or not at all, over any number of documents, calls and collections. A transaction is
/// visible if its commit version is not later than the timestamp. The members of a group
/// ([`Config::with_group_commit`](crate::Config::with_group_commit)) share one commit version.
///
/// The result need not be a state of one serial order of all transactions. If clocks differ, a
/// transaction that only *read* a write may be visible without the writing transaction (RESTBase
/// design, "readers at a timestamp").
#[derive(Clone, Copy, Debug)]
pub struct SnapshotReader<'a> {
    domain: &'a Domain,
    time: Duration,
}

/// The calls of a domain on past versions of documents.
///
/// [`Domain::history`] returns it.
///
/// ```
/// # use std::time::Duration;
/// # use txn_core::{Collection, Domain, Error, Raw};
/// # async fn read(domain: &Domain, stock: &Collection<Raw>) -> Result<(), Error> {
/// let history = domain.history();
/// history.enable(stock, Duration::from_secs(3600)).await?;
/// // Later:
/// let before = history.latest_timestamp() - Duration::from_secs(60);
/// let shelf = history.at(before)?.get(stock, "shelf").await?;
/// # let _ = shelf;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    domain: &'a Domain,
}

impl Domain {
    /// Returns the calls on past versions of documents.
    #[must_use]
    pub fn history(&self) -> History<'_> {
        History { domain: self }
    }
}

impl<'a> History<'a> {
    /// Keeps the past versions of a collection for `retention`.
    ///
    /// A second collection, `<name>-history`, stores the versions that transactions overwrite and
    /// delete from now on. The call is idempotent.
    /// [`Admin::release_collection`](crate::Admin::release_collection) ends the history.
    ///
    /// Call this method where the collection is created. A process that opened the collection
    /// earlier keeps no history until the process opens the collection again. Versions that such a
    /// process overwrites are lost to readers at a timestamp, which then report an error. Writes of
    /// plain clients have no version of their own.
    ///
    /// For each document, a transaction also writes a small document (the head) twice, and the
    /// overwritten version once. The commit takes two more round trips. A transaction of one
    /// document is no longer one conditional write. Heads remain, even for deleted documents.
    /// [`History::purge`] drops past versions.
    ///
    /// # Errors
    /// - [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if the collection has
    ///   another retention already, or the history collection cannot be created.
    /// - [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `retention` is not longer than
    ///   [`Config::with_max_drift`](crate::Config::with_max_drift).
    ///
    /// # Cancel safety
    /// After a dropped future, the call can be repeated.
    pub async fn enable<C: Codec>(
        &self,
        collection: &Collection<C>,
        retention: Duration,
    ) -> Result<()> {
        self.enable_of(&collection.name, retention).await
    }

    /// Returns the latest timestamp that can be read now.
    ///
    /// The result is the time since the Unix epoch: the wall clock of this process or of the
    /// server, whichever is earlier, minus [maximum drift](crate::Config::with_max_drift).
    #[must_use]
    pub fn latest_timestamp(&self) -> Duration {
        self.domain.engine.time.settled_until()
    }

    /// Returns a reader at a timestamp.
    ///
    /// `timestamp` is the time since the Unix epoch, such as the
    /// [`CommitVersion::unix_time`](crate::CommitVersion::unix_time) of a commit.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `timestamp` is later than
    /// [`History::latest_timestamp`].
    pub fn at(&self, timestamp: Duration) -> Result<SnapshotReader<'a>> {
        let latest = self.latest_timestamp();
        if timestamp > latest {
            let message = format!(
                "that moment cannot be read yet: a process whose clock is behind may still commit before it; ask again in {:?}",
                timestamp.saturating_sub(latest)
            );
            return Err(Error::invalid(message));
        }
        Ok(SnapshotReader { domain: self.domain, time: timestamp })
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
    pub async fn purge<C: Codec>(&self, collection: &Collection<C>) -> Result<u64> {
        self.purge_of(&collection.name).await
    }

    fn purge_of<'b>(&self, collection: &'b Arc<str>) -> BoxFuture<'b, Result<u64>>
    where
        'a: 'b,
    {
        let engine = &self.domain.engine;
        Box::pin(async move {
            let history = engine.reads.history_of(collection)?;
            let purged = engine.histories.purge_history(collection, &history).await;
            purged.map_err(AttemptError::into_error)
        })
    }

    fn enable_of<'b>(&self, collection: &'b str, retention: Duration) -> BoxFuture<'b, Result<()>>
    where
        'a: 'b,
    {
        let engine = &self.domain.engine;
        Box::pin(async move {
            let drift = engine.context.config.max_drift;
            if retention <= drift {
                let message = format!(
                    "a history of {retention:?} can never be read: keep it for more than {drift:?}"
                );
                return Err(Error::invalid(message));
            }
            let deadline = engine.context.deadline(engine.context.config.timeout);
            let kept = engine.collections.enable_history(collection, retention, &deadline).await;
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
        let timeout = engine.context.config.timeout;
        Box::pin(async move {
            let history = engine.reads.history_of(collection)?;
            engine.reads.check_readable(keys)?;
            engine.reads.check_kept(&history, self.time)?;
            let deadline = engine.context.deadline(timeout);
            let enclosing = enclosing();
            let read = engine.reads.read_at(keys, &history, self.time, &enclosing, &deadline);
            engine.context.within(timeout, read).await.map_err(AttemptError::into_error)
        })
    }
}
