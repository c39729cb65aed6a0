//! The handle that the application's closure works with.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::attempt::{Attempt, Intent, Receipt};
use crate::collection::{Codec, Collection, DocumentId};
use crate::document::Image;
use crate::error::{Error, Result};
use crate::stop::{Cause, Stop};
use crate::store::Key;
use crate::tid::Tid;

/// One attempt of a transaction. Reads see the transaction's own writes, and the same content each time.
///
/// Methods take `&self`, so reads can be joined. They are cancel safe: a dropped future leaves no lock
/// behind that the end of the transaction would not take off. Dropping the handle without
/// [`Transaction::commit`] rolls back in the background.
#[derive(Debug)]
pub struct Transaction {
    attempt: Arc<Attempt>,
    /// Why this attempt can not commit any more, once it is known.
    doomed: Mutex<Option<Cause>>,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("tid", &self.tid).finish_non_exhaustive()
    }
}

impl Transaction {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt, doomed: Mutex::new(None) }
    }

    /// The id of this attempt, for [`Domain::outcome`](crate::Domain::outcome). Asking for it costs a transaction that
    /// writes a single document its short way: it commits by a record like all others, for only a record can be asked
    /// later.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.attempt.tid_to_ask_for()
    }

    /// The document, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when the attempt has to start again, which `transact` does by itself: pass
    /// it on with `?`. [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the stored document is no `C::Value` or the id can not
    /// exist.
    pub async fn get<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<C::Value>> {
        let key = collection.key(id);
        let images = self.images(std::slice::from_ref(&key)).await?;
        Collection::<C>::decode(&key, images.first().and_then(Option::as_ref))
    }

    /// Documents in one round trip: one answer per id, in order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_many<C: Codec, I: Into<DocumentId>>(
        &self,
        collection: &Collection<C>,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Option<C::Value>>> {
        let keys: Vec<Key> = ids.into_iter().map(|id| collection.key(id)).collect();
        let images = self.images(&keys).await?;
        keys.iter()
            .zip(&images)
            .map(|(key, image)| Collection::<C>::decode(key, image.as_ref()))
            .collect()
    }

    async fn images(&self, keys: &[Key]) -> Result<Vec<Option<Image>>> {
        self.attempt.read(keys).await.map_err(|stop| self.doom(stop))
    }

    /// Writes a document, whether or not it exists. Nothing is sent before the commit.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the value is no storable JSON object, the id can not exist, or a limit is
    /// exceeded.
    pub fn put<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
        value: &C::Value,
    ) -> Result<()> {
        let key = collection.key(id);
        let image = Collection::<C>::encode(&key, value)?;
        let intent = match self.attempt.intent(&key) {
            Some(Intent::Insert(_)) => Intent::Insert(image),
            _ => Intent::Put(image),
        };
        self.attempt.intend(key, intent)
    }

    /// Writes a document that must not exist. Nothing is sent before the commit, which fails with
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists) if it does.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`ErrorKind::Exists`](crate::ErrorKind::Exists) at once if this transaction wrote it itself.
    pub fn insert<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
        value: &C::Value,
    ) -> Result<()> {
        let key = collection.key(id);
        let image = Collection::<C>::encode(&key, value)?;
        let intent = match self.attempt.intent(&key) {
            Some(Intent::Put(_) | Intent::Insert(_)) => return Err(Attempt::exists(&key)),
            // Deleted by this transaction: it may have existed.
            Some(Intent::Delete) => Intent::Put(image),
            None => Intent::Insert(image),
        };
        self.attempt.intend(key, intent)
    }

    /// Deletes a document, if it exists. Nothing is sent before the commit.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<()> {
        self.attempt.intend(collection.key(id), Intent::Delete)
    }

    /// Commits. The outcome does not depend on the returned future being awaited to its end: dropped, the
    /// commit goes on.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the transaction would have to start again (`transact` does so by itself),
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists), [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a document does not fit its
    /// mapping, [`ErrorKind::Unknown`](crate::ErrorKind::Unknown), and the others of [`ErrorKind`](crate::ErrorKind).
    pub async fn commit(self) -> Result<Receipt> {
        self.conclude().await.map_err(|stop| match stop.into_error() {
            // An unknown one-document write has no record that its tid could be asked for.
            error if error.kind() == crate::ErrorKind::Unknown => error,
            error => error.in_transaction(self.attempt.tid),
        })
    }

    /// Ends the transaction without a commit; returns once its locks are off.
    pub async fn rollback(self) {
        self.attempt.roll_back("rolled back by the application".to_owned(), false).await;
    }

    pub(crate) async fn conclude(&self) -> Result<Receipt, Stop> {
        if let Some(cause) = self.doomed.lock().clone() {
            return Err(Stop::Retry(cause));
        }
        self.attempt.commit().await
    }

    /// The closure failed. Before its error is surfaced its reads are validated: they may not have belonged
    /// together.
    pub(crate) async fn examine(&self) -> Result<(), Stop> {
        if let Some(cause) = self.doomed.lock().clone() {
            return Err(Stop::Retry(cause));
        }
        self.attempt.examine().await
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// Notes why the attempt is over, whatever the closure makes of the error.
    fn doom(&self, stop: Stop) -> Error {
        if let Stop::Retry(cause) = &stop {
            self.doomed.lock().get_or_insert_with(|| cause.clone());
        }
        stop.into_error().in_transaction(self.attempt.tid)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.attempt.abandon();
    }
}
