//! `Transaction`: the handle for the reads and writes of a closure.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tracing::{Instrument, Span};

use crate::api::collection::{Codec, Collection, DocumentId};
use crate::attempt::committing::rollback::Why;
use crate::attempt::{Attempt, AttemptMode, Edit, Receipt};
use crate::config::Options;
use crate::engine::SharedEngine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::hot::board::Contender;
use crate::engine::signals::transaction_span::TransactionSpan;
use crate::error::{Error, Result};
use crate::event::AbortReason;
use txn_protocol::document::Image;
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_store::Key;

/// The handle through which a closure reads and writes.
///
/// Reads see the writes of the transaction. Two reads of one document return the same content.
///
/// Methods take `&self`, so that a closure can join reads. All methods are cancel safe: the end of
/// the transaction releases the locks of dropped futures. Dropping the handle without
/// [`Transaction::commit`] rolls back in the background.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use txn_core::{Collection, Domain, Error, Raw, Typed};
/// # #[derive(Serialize, Deserialize)]
/// # struct Shelf { left: u32 }
/// # async fn order(domain: &Domain, stock: &Collection<Typed<Shelf>>, orders: &Collection<Raw>) -> Result<(), Error> {
/// domain
///     .transact(async |tx| {
///         let shelves = tx.get_many(stock, ["apple", "pear"]).await?;
///         if shelves.iter().all(Option::is_none) {
///             tx.put(stock, "apple", &Shelf { left: 10 })?;
///         }
///         // Fields that `Shelf` does not know stay as they are.
///         tx.update(stock, "apple", |shelf| shelf.left -= 1).await?;
///         tx.insert(orders, "order-2", &Raw::new("{}"))?;
///         tx.delete(orders, "order-1")?;
///         tx.when_committed(|| println!("ordered"));
///         Ok(())
///     })
///     .await
/// # }
/// ```
#[derive(Debug)]
pub struct Transaction {
    attempt: Arc<Attempt>,
    /// Why this attempt cannot commit, even if the closure returns `Ok`.
    doomed: Mutex<Option<AttemptError>>,
    hints: Mutex<Hints>,
    /// Counts the documents that a transaction of `Domain::begin` lost to other processes.
    contender: Option<Contender>,
    /// The span of a transaction of `Domain::begin`.
    trace: Option<TransactionSpan>,
}

/// Callbacks that run after the commit.
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
    /// Completes a transaction of `Domain::begin`.
    pub(super) fn begun_by_hand(mut self, contender: Contender, trace: TransactionSpan) -> Self {
        (self.contender, self.trace) = (Some(contender), Some(trace));
        self
    }

    /// Starts an attempt.
    pub(super) fn start(
        engine: &SharedEngine,
        tid: AttemptId,
        options: &Options,
        mode: AttemptMode,
        deadline: Duration,
        span: &Span,
    ) -> Result<Self> {
        if let Some(metadata) = &options.metadata {
            let valid = serde_json::from_str::<serde::de::IgnoredAny>(metadata);
            valid.map_err(|e| Error::invalid(format!("the metadata is not JSON: {e}")))?;
        }
        let attempt = Attempt::begin(engine.clone(), tid, options.clone(), mode, deadline, span);
        let (doomed, hints) = (Mutex::new(None), Mutex::default());
        Ok(Self { attempt, doomed, hints, contender: None, trace: None })
    }

    /// Registers a callback that runs after the commit is acknowledged.
    ///
    /// Best effort: the callback does not run if the future is dropped, the process dies, or the
    /// outcome is [`ErrorKind::Unknown`](crate::ErrorKind::Unknown). The callback must not block.
    pub fn when_committed(&self, hint: impl FnOnce() + Send + 'static) {
        self.hints.lock().0.push(Box::new(hint));
    }

    /// Drops the callbacks of this run, because the closure runs again.
    pub(crate) fn run_again(&self) {
        self.hints.lock().0.clear();
    }

    /// Runs the callbacks.
    pub(crate) fn run_callbacks(&self) {
        let hints = std::mem::take(&mut *self.hints.lock());
        hints.0.into_iter().for_each(|hint| hint());
    }

    /// Returns the id of this attempt, for [`Domain::outcome`](crate::Domain::outcome).
    ///
    /// ```
    /// # use txn_core::{Collection, Domain, Error, Options, Raw};
    /// # async fn write(domain: &Domain, orders: &Collection<Raw>, log: &std::sync::mpsc::Sender<String>) -> Result<(), Error> {
    /// let options = Options::default().with_own_record(true);
    /// domain
    ///     .run(&options, async |tx| {
    ///         // After a crash, a reader of this line can ask `Domain::outcome`.
    ///         let _ = log.send(tx.tid()?.to_string());
    ///         tx.put(orders, "order-1", &Raw::new("{}"))
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) without [`Options::with_own_record`].
    pub fn tid(&self) -> Result<AttemptId> {
        self.attempt.own_tid().ok_or_else(|| {
            Error::invalid(
                "the transaction has no id of its own, because other transactions may share its record: set \
                 `Options::with_own_record(true)`",
            )
        })
    }

    /// Reads a document; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the attempt has to start again.
    /// Return this error with `?`, and `transact` retries.
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the stored document is not a
    /// `C::Value`. [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the id cannot exist.
    pub async fn get<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<C::Value>> {
        let key = collection.key(id);
        let images = self.images(std::slice::from_ref(&key)).await?;
        Collection::<C>::decode(&key, images.first().and_then(Option::as_ref))
    }

    /// Reads documents of one collection in one round trip.
    ///
    /// Returns one answer per id, in order. [`Transaction::prefetch`] reads from several
    /// collections.
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

    /// Returns the version of the commit that wrote the document.
    ///
    /// `None` if the document does not exist, or no transaction ever wrote it.
    ///
    /// Reads the document if the transaction has not read it yet. The transaction's own writes have
    /// no version yet, so call this before writing. If an earlier member of a group wrote the
    /// document, the transaction leaves the group and runs again.
    ///
    /// ```
    /// # use txn_core::{Collection, CommitVersion, Domain, Error, Raw};
    /// # async fn unchanged(domain: &Domain, orders: &Collection<Raw>, seen: CommitVersion) -> Result<bool, Error> {
    /// domain
    ///     .transact(async |tx| Ok::<_, Error>(tx.version(orders, "order-1").await? == Some(seen)))
    ///     .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`]; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a document
    /// that the transaction wrote without having read it.
    pub async fn version<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<CommitVersion>> {
        let key = collection.key(id);
        self.images(std::slice::from_ref(&key)).await?;
        self.attempt.version(&key)
    }

    /// Reads documents of any collections in one round trip. Later `get`s of these documents ask no
    /// server. [`Collection::key`] makes the keys.
    ///
    /// ```
    /// # use txn_core::{Collection, Domain, Error, Raw};
    /// # async fn look(domain: &Domain, stock: &Collection<Raw>, orders: &Collection<Raw>) -> Result<(), Error> {
    /// domain
    ///     .transact(async |tx| {
    ///         tx.prefetch([stock.key("apple"), orders.key("order-1")]).await?;
    ///         let shelf = tx.get(stock, "apple").await?; // no request
    ///         let order = tx.get(orders, "order-1").await?; // no request
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

    pub(super) fn images<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Image>>>> {
        Box::pin(async move { self.attempt.read(keys).await.map_err(|error| self.doom(error)) })
    }

    /// Writes a document, whether or not it exists. The commit sends the write.
    ///
    /// The value replaces the whole content. Fields that the type does not know are lost.
    /// [`Transaction::update`] keeps them.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the value is not a storable JSON
    /// object, the id cannot exist, or a limit is exceeded. A refused write dooms the transaction:
    /// even if the closure ignores the error, nothing is committed, and the commit returns the
    /// error.
    pub fn put<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
        value: &C::Value,
    ) -> Result<()> {
        let key = collection.key(id);
        self.write(&key, Collection::<C>::encode(&key, value).map(Edit::Put))
    }

    /// Changes a document with a closure, and writes the changed fields.
    ///
    /// Reads the document, and calls `change` with its value.
    ///
    /// Returns the result of `change`, or `None` without a call if the document does not exist.
    /// Fields that the type does not know stay.
    ///
    /// The engine compares the encoded value before and after the change. The engine replaces
    /// fields that differ, removes fields that are no longer encoded, and appends new fields. All
    /// other fields keep their bytes and their order. Nested objects are merged in the same way,
    /// arrays are replaced. A default that `change` did not touch is not written.
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
    /// The changed value is written for any result of `change`. To cancel the change, return an
    /// error from the closure of the transaction.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`].
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) also if the document has a field under an
    /// alias, a name that the type reads and does not write.
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

    /// Writes a document that must not exist. The commit sends the write.
    ///
    /// The commit fails with [`ErrorKind::Exists`](crate::ErrorKind::Exists) if the document
    /// exists, even if the transaction deletes the document again.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`ErrorKind::Exists`](crate::ErrorKind::Exists) at once if this
    /// transaction wrote the document.
    pub fn insert<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
        value: &C::Value,
    ) -> Result<()> {
        let key = collection.key(id);
        self.write(&key, Collection::<C>::encode(&key, value).map(Edit::Insert))
    }

    /// Deletes a document, if it exists. The commit sends the deletion.
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

    /// Commits all writes of the transaction, or none.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the commit continues in the background, or was not begun
    /// and the transaction is rolled back.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the transaction has to start again
    /// (`transact` retries), [`ErrorKind::Exists`](crate::ErrorKind::Exists),
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a document does not fit its mapping,
    /// [`ErrorKind::Unknown`](crate::ErrorKind::Unknown), and the other kinds of
    /// [`ErrorKind`](crate::ErrorKind).
    pub async fn commit(self) -> Result<Receipt> {
        self.boxed_commit().await
    }

    fn boxed_commit(mut self) -> BoxFuture<'static, Result<Receipt>> {
        let span = self.attempt.span().clone();
        let commit = async move {
            let result = self.confirm_and_commit().await;
            if let Some(trace) = &mut self.trace {
                match &result {
                    Ok(_) => trace.committed(1),
                    Err(error) => trace.failed(1, error),
                }
            }
            result
        };
        Box::pin(commit.instrument(span))
    }

    async fn confirm_and_commit(&self) -> Result<Receipt> {
        self.confirm_aliases().await?;
        let receipt = self.conclude().await;
        let receipt = receipt.map_err(|error| error.into_error().of_attempt(self.attempt.tid))?;
        self.run_callbacks();
        Ok(receipt)
    }

    /// Ends the transaction without a commit, and releases its locks.
    ///
    /// Returns after the release, at the latest at the deadline of the transaction. After the
    /// deadline the release continues in the background.
    pub async fn rollback(mut self) {
        let why = Why::ended(AbortReason::RolledBack, "rolled back by the application");
        let span = self.attempt.span().clone();
        self.attempt.roll_back(why).instrument(span).await;
        if let Some(trace) = &mut self.trace {
            trace.rolled_back(1);
        }
    }

    /// Checks that no alias names another collection than at its opening. Otherwise rolls back.
    pub(crate) async fn confirm_aliases(&self) -> Result<()> {
        let confirmed = self.attempt.confirm_aliases().await;
        if let Err(error) = &confirmed {
            self.attempt.roll_back(Why::failed(error)).await;
        }
        confirmed.map_err(|error| error.in_transaction(self.attempt.tid))
    }

    pub(crate) async fn conclude(&self) -> Result<Receipt, AttemptError> {
        let doomed = self.doomed.lock().take();
        match doomed {
            None => self.attempt.commit().await,
            Some(retry @ AttemptError::Retry(_)) => Err(retry),
            // The refused write may rest on reads of different states.
            Some(refused @ AttemptError::Fail(_)) => {
                self.attempt.examine().await?;
                let why = Why::ended(AbortReason::Failed, "one of its writes was refused");
                self.attempt.roll_back(why).await;
                Err(refused)
            }
        }
    }

    /// Validates the reads of a closure that failed. The error may rest on reads of different
    /// states.
    pub(crate) async fn examine(&self) -> Result<(), AttemptError> {
        if let Some(retry @ AttemptError::Retry(_)) = self.doomed.lock().take() {
            return Err(retry);
        }
        self.attempt.examine().await
    }

    /// Whether this attempt cannot commit.
    pub(crate) fn is_doomed(&self) -> bool {
        self.doomed.lock().is_some()
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    fn write(&self, key: &Key, mutation: Result<Edit>) -> Result<()> {
        self.or_doom(mutation.and_then(|mutation| self.attempt.buffer(key, mutation)))
    }

    /// Dooms the transaction if a write was refused. The caller asked for all writes.
    fn or_doom<T>(&self, written: Result<T>) -> Result<T> {
        if let Err(refused) = &written {
            self.doomed.lock().get_or_insert_with(|| refused.again().into());
        }
        written
    }

    /// Notes the reason if the attempt has to start again.
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
