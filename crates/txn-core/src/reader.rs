//! Readers that never lock, and per-item writers.

use crate::attempt::{ReadEntry, SingleOutcome};
use crate::collection::{Codec, Collection, DocumentId};
use crate::document::View;
use crate::domain::Domain;
use crate::engine::From;
use crate::error::{Error, Result};
use crate::resolve::Met;
use crate::rules::conflict::Requester;
use crate::stop::Stop;
use crate::store::Key;
use crate::tid::Tid;

/// Reads without a transaction and without locks: committed content only, each document by itself.
///
/// Several of them are no snapshot. By default any copy answers, so with replicas two reads of one
/// document may go back in time; [`Reader::verified`] asks the primary.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    domain: &'a Domain,
    from: From,
}

/// A document as a [`Reader`] saw it, to be given to [`Domain::compare_and_set`].
#[derive(Clone, Debug)]
pub struct Snapshot<T> {
    /// The content; `None` if the document does not exist.
    pub value: Option<T>,
    key: Key,
    entry: ReadEntry,
}

impl<T> Snapshot<T> {
    /// The commit that wrote the content, if a transaction did.
    #[must_use]
    pub fn tid(&self) -> Option<Tid> {
        self.entry.observed.tid
    }
}

/// What became of a [`Domain::compare_and_set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareAndSet {
    /// It is written, as this version.
    Written(Tid),
    /// The document is no longer what was read, or a transaction holds it: read again.
    Mismatch,
}

impl Domain {
    /// A reader without locks.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        Reader { domain: self, from: From::AnyCopy }
    }

    /// Writes one document if it is still as it was read and no transaction holds it: one conditional
    /// write. If the holder is dead it is cleaned up; the answer is [`CompareAndSet::Mismatch`] all the same.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the value can not be stored or the document did not exist (insert by a
    /// transaction), [`ErrorKind::Unknown`] if it is not known whether it was written.
    ///
    /// # Cancel safety
    /// Dropped, the write may happen or not.
    pub async fn compare_and_set<C: Codec>(
        &self,
        collection: &Collection<C>,
        snapshot: &Snapshot<C::Value>,
        value: &C::Value,
    ) -> Result<CompareAndSet> {
        let engine = &self.engine;
        let key = &snapshot.key;
        let patience = engine.patience(engine.config.deadline);
        if key.collection != collection.name {
            return Err(Error::invalid(format!("it is no document of {}", collection.name)).at(key));
        }
        let image = Collection::<C>::encode(key, value)?;
        let written = async {
            let View::Present { version, stored, .. } = &snapshot.entry.view else {
                return Err(absent(key).into());
            };
            if let Some(holder) = stored.lock {
                // One look now; a caller that comes again finds it dead after a lease.
                let met = engine.meet(Requester::Patient, key, *version, holder, &patience).await?;
                if met == Met::Void {
                    engine.unlock(key, &snapshot.entry.view, holder).await?;
                }
                return Ok(CompareAndSet::Mismatch);
            }
            let commit = engine.commit_tid(stored.tid).map_err(|error| error.at(key))?;
            match engine.write_single(key, &snapshot.entry, &image, commit, &patience).await? {
                SingleOutcome::Committed => Ok(CompareAndSet::Written(commit)),
                SingleOutcome::Overtaken => Ok(CompareAndSet::Mismatch),
            }
        };
        written.await.map_err(Stop::into_error)
    }
}

fn absent(key: &Key) -> Error {
    Error::invalid("there is no document to compare with: insert it in a transaction").at(key)
}

impl Reader<'_> {
    /// The same reader, asking the primary: linearizable for each document as long as no primary crashes.
    #[must_use]
    pub fn verified(mut self) -> Self {
        self.from = From::Primary;
        self
    }

    /// The document, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the store does not answer in time; [`ErrorKind::Invalid`] if the content is
    /// no `C::Value`.
    pub async fn get<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<C::Value>> {
        Ok(self.read(collection, id).await?.value)
    }

    /// Documents in one round trip: one answer per id, in order.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub async fn get_many<C: Codec, I: Into<DocumentId>>(
        &self,
        collection: &Collection<C>,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Option<C::Value>>> {
        let keys: Vec<Key> = ids.into_iter().map(|id| collection.key(id)).collect();
        let snapshots = self.snapshots::<C>(keys).await?;
        Ok(snapshots.into_iter().map(|snapshot| snapshot.value).collect())
    }

    /// The document together with what [`Domain::compare_and_set`] needs to know of it.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub async fn read<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Snapshot<C::Value>> {
        let mut snapshots = self.snapshots::<C>(vec![collection.key(id)]).await?;
        snapshots.pop().ok_or_else(|| Error::unavailable("the store gave no answer"))
    }

    async fn snapshots<C: Codec>(&self, keys: Vec<Key>) -> Result<Vec<Snapshot<C::Value>>> {
        let engine = &self.domain.engine;
        engine.check_readable(&keys)?;
        let patience = engine.patience(engine.config.deadline);
        let entries = async {
            let views = engine.views(&keys, self.from, &patience).await?;
            engine.observe(&keys, views, self.from, &patience).await
        };
        let entries = entries.await.map_err(Stop::into_error)?;
        let snapshot = |(key, entry): (Key, ReadEntry)| {
            let value = Collection::<C>::decode(&key, entry.observed.image.as_ref())?;
            Ok(Snapshot { value, key, entry })
        };
        keys.into_iter().zip(entries).map(snapshot).collect()
    }
}
