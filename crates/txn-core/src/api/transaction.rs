//! The handle that the application's closure works with.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::collection::{Codec, Collection, DocumentId};
use crate::attempt::{Attempt, Edit, Receipt};
use crate::engine::attempt_error::AttemptError;
use crate::engine::hot::board::Contender;
use crate::error::{Error, Result};
use crate::store::Key;
use txn_protocol::document::Image;
use txn_protocol::ids::{AttemptId, CommitVersion};

/// What a closure reads and writes through: the handle of one attempt of a transaction. Reads see the transaction's own writes, and the same content each time.
///
/// Methods take `&self`, so reads can be joined. They are cancel safe: a dropped future leaves no lock
/// behind that the end of the transaction would not take off. Dropping the handle without
/// [`Transaction::commit`] rolls back in the background.
#[derive(Debug)]
pub struct Transaction {
    attempt: Arc<Attempt>,
    /// Why this attempt cannot commit any more, once it is known, whatever the closure makes of it.
    doomed: Mutex<Option<AttemptError>>,
    hints: Mutex<Hints>,
    /// Counts the documents that a transaction by hand lost to other processes, until it ends.
    contender: Option<Contender>,
}

/// What is to be called once the transaction is committed.
#[derive(Default)]
struct Hints(Vec<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for Hints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hints").field(&self.0.len()).finish()
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("tid", &self.tid).finish_non_exhaustive()
    }
}

impl Transaction {
    pub(super) fn with_contender(mut self, contender: Contender) -> Self {
        self.contender = Some(contender);
        self
    }

    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt, doomed: Mutex::new(None), hints: Mutex::default(), contender: None }
    }

    /// Wakes others of this process once the transaction is committed: `hint` is called when this attempt's caller is told so, and
    /// they need not look by themselves. Never called for an attempt that does not commit, and only a hint: a caller that is dropped,
    /// dies or is told `Unknown` is never told. It must return at once.
    pub fn when_committed(&self, hint: impl FnOnce() + Send + 'static) {
        self.hints.lock().0.push(Box::new(hint));
    }

    /// The closure runs again: what this run did is forgotten.
    pub(crate) fn run_again(&self) {
        self.hints.lock().0.clear();
    }

    /// The caller is about to be told that it is committed.
    pub(crate) fn tell_committed(&self) {
        let hints = std::mem::take(&mut *self.hints.lock());
        hints.0.into_iter().for_each(|hint| hint());
    }

    /// The id of this attempt, by which [`Domain::outcome`](crate::Domain::outcome) tells later what became of it. Asking for it costs a transaction that
    /// writes a single document its short way: it commits by a record like all others, for only a record can be asked
    /// later.
    #[must_use]
    pub fn tid(&self) -> AttemptId {
        self.attempt.tid_to_ask_for()
    }

    /// Reads a document; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when the attempt has to start again, which `transact` does
    /// by itself: pass it on with `?`. [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the stored document is no
    /// `C::Value` or the id cannot exist.
    pub async fn get<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<C::Value>> {
        let key = collection.key(id);
        let images = self.images(std::slice::from_ref(&key)).await?;
        Collection::<C>::decode(&key, images.first().and_then(Option::as_ref))
    }

    /// Reads documents of one collection in one round trip: one answer per id, in order. For several collections
    /// see [`Transaction::prefetch`].
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

    /// Tells which commit wrote the content that this transaction found in a document; `None` if the document does not
    /// exist, or if no transaction ever wrote it. Reads the document if that was not done yet. What the transaction
    /// itself writes is no commit yet: ask before writing.
    ///
    /// # Errors
    /// As [`Transaction::get`]; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a document that the transaction
    /// wrote without having read it.
    pub async fn version<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<CommitVersion>> {
        let key = collection.key(id);
        self.images(std::slice::from_ref(&key)).await?;
        self.attempt.version(&key)
    }

    /// Reads documents of any collections in one round trip, so that each `get` of one of them that follows is
    /// answered from the transaction. The keys are those of [`Collection::key`].
    ///
    /// ```
    /// # use txn_core::{Collection, Domain, Error, Raw};
    /// # async fn look(domain: &Domain, stock: &Collection<Raw>, orders: &Collection<Raw>) -> Result<(), Error> {
    /// domain
    ///     .transact(async |tx| {
    ///         tx.prefetch([stock.key("apple"), orders.key("order-1")]).await?;
    ///         let shelf = tx.get(stock, "apple").await?; // asks nobody
    ///         let order = tx.get(orders, "order-1").await?; // asks nobody
    /// #       let _ = (shelf, order);
    ///         Ok(())
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn prefetch(&self, keys: impl IntoIterator<Item = Key>) -> Result<()> {
        let keys: Vec<Key> = keys.into_iter().collect();
        self.images(&keys).await.map(drop)
    }

    pub(super) async fn images(&self, keys: &[Key]) -> Result<Vec<Option<Image>>> {
        self.attempt.read(keys).await.map_err(|error| self.doom(error))
    }

    /// Writes a document, whether or not it exists. Nothing is sent before the commit.
    ///
    /// The value is the whole new content: fields that stand in the document and that the type does not know are gone
    /// afterwards. [`Transaction::update`] keeps them.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the value is no storable JSON object, the id cannot
    /// exist, or a limit is exceeded. A write that was refused dooms the transaction: also if the closure ignores the
    /// error, nothing is committed, and the commit returns it.
    pub fn put<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
        value: &C::Value,
    ) -> Result<()> {
        let key = collection.key(id);
        self.write(&key, Collection::<C>::encode(&key, value).map(Edit::Put))
    }

    /// Reads a document, lets `change` change its value, and writes what changed: fields that the type does not know
    /// stay. Returns what `change` returned, or `None`, without calling it, if the document does not exist.
    ///
    /// What the value is written as before and after the change is compared. Fields that differ are
    /// replaced, fields that are not written any more are removed, new ones are appended; all others
    /// keep their bytes and their place. Nested objects are treated in the same way, arrays are replaced whole. A
    /// default that `change` did not touch is not written.
    ///
    /// ```
    /// # use txn_core::{Collection, Domain, Error, Typed};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Stock { left: u32 }
    /// # async fn sell(domain: &Domain, stock: &Collection<Typed<Stock>>) -> Result<Option<u32>, Error> {
    /// domain
    ///     .transact(async |tx| {
    ///         tx.update(stock, "apple", |shelf| {
    ///             shelf.left -= 1;
    ///             shelf.left
    ///         })
    ///         .await
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// What `change` made of the value is written whatever it returns: to change nothing after all, return an
    /// error from the closure of the transaction.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`]. [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) also if
    /// the type reads a field under another name than it writes (an alias) and the document has it under that one.
    pub async fn update<C: Codec, R>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
        change: impl FnOnce(&mut C::Value) -> R,
    ) -> Result<Option<R>> {
        let key = collection.key(id);
        let Some(image) = self.images(std::slice::from_ref(&key)).await?.pop().flatten() else {
            return Ok(None);
        };
        let Some(mut value) = Collection::<C>::decode(&key, Some(&image))? else { return Ok(None) };
        let before = self.or_doom(Collection::<C>::encode(&key, &value))?;
        let returned = change(&mut value);
        let after = self.or_doom(Collection::<C>::encode(&key, &value))?;
        let merged = Collection::<C>::merge(&key, &image, &before, &after);
        self.write(&key, merged.map(Edit::Put))?;
        Ok(Some(returned))
    }

    /// Writes a document that must not exist. Nothing is sent before the commit, which fails with
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists) if it does, also if the transaction deleted it again.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`ErrorKind::Exists`](crate::ErrorKind::Exists) at once if this transaction wrote it
    /// itself.
    pub fn insert<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
        value: &C::Value,
    ) -> Result<()> {
        let key = collection.key(id);
        self.write(&key, Collection::<C>::encode(&key, value).map(Edit::Insert))
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
        self.write(&collection.key(id), Ok(Edit::Delete))
    }

    /// Commits what was written: all of it, or nothing. The outcome does not depend on the returned future being awaited to its end: dropped, the
    /// commit goes on.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the transaction would have to start again (`transact`
    /// does so by itself), [`ErrorKind::Exists`](crate::ErrorKind::Exists),
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a document does not fit its mapping,
    /// [`ErrorKind::Unknown`](crate::ErrorKind::Unknown), and the others of [`ErrorKind`](crate::ErrorKind).
    pub async fn commit(self) -> Result<Receipt> {
        self.confirm_aliases().await?;
        let receipt = self.conclude().await.map_err(|error| match error.into_error() {
            // An unknown one-document write has no record that its tid could be asked for.
            error if error.kind() == crate::ErrorKind::Unknown => error,
            error => error.in_transaction(self.attempt.tid),
        })?;
        self.tell_committed();
        Ok(receipt)
    }

    /// Ends the transaction without a commit; returns once its locks are off.
    pub async fn rollback(self) {
        self.attempt.roll_back("rolled back by the application".to_owned(), false).await;
    }

    /// Whether the aliases by which its collections were opened still stand for them. If not, it is
    /// rolled back.
    pub(crate) async fn confirm_aliases(&self) -> Result<()> {
        let confirmed = self.attempt.confirm_aliases().await;
        if let Err(error) = &confirmed {
            self.attempt.roll_back(error.to_string(), false).await;
        }
        confirmed.map_err(|error| error.in_transaction(self.attempt.tid))
    }

    pub(crate) async fn conclude(&self) -> Result<Receipt, AttemptError> {
        let doomed = self.doomed.lock().take();
        match doomed {
            None => self.attempt.commit().await,
            Some(retry @ AttemptError::Retry(_)) => Err(retry),
            // What was refused may have been computed from reads that do not belong together.
            Some(refused @ AttemptError::Fail(_)) => {
                self.attempt.examine().await?;
                self.attempt.roll_back("one of its writes was refused".to_owned(), false).await;
                Err(refused)
            }
        }
    }

    /// The closure failed. Before its error is surfaced its reads are validated: they may not have belonged
    /// together.
    pub(crate) async fn examine(&self) -> Result<(), AttemptError> {
        if let Some(retry @ AttemptError::Retry(_)) = self.doomed.lock().take() {
            return Err(retry);
        }
        self.attempt.examine().await
    }

    /// Whether it is known that this attempt cannot commit.
    pub(crate) fn is_doomed(&self) -> bool {
        self.doomed.lock().is_some()
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    fn write(&self, key: &Key, mutation: Result<Edit>) -> Result<()> {
        self.or_doom(mutation.and_then(|mutation| self.attempt.buffer(key, mutation)))
    }

    /// A write that is refused dooms the transaction: the rest alone is not what was asked for.
    fn or_doom<T>(&self, written: Result<T>) -> Result<T> {
        if let Err(refused) = &written {
            self.doomed.lock().get_or_insert_with(|| refused.again().into());
        }
        written
    }

    /// Notes why the attempt has to start again, if it has to.
    fn doom(&self, error: AttemptError) -> Error {
        if let AttemptError::Retry(reason) = &error {
            let mut doomed = self.doomed.lock();
            if !matches!(&*doomed, Some(AttemptError::Retry(_))) {
                *doomed = Some(AttemptError::Retry(reason.clone()));
            }
        }
        error.into_error().in_transaction(self.attempt.tid)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.attempt.abandon();
    }
}
