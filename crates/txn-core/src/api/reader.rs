//! Readers without locks, and conditional writes of single documents.

use futures::future::BoxFuture;

use crate::api::collection::{Codec, Collection, DocumentId};
use crate::api::domain::Domain;
use crate::attempt::Edit;
use crate::attempt::nesting::enclosing;
use crate::config::{LockMode, Options};
use crate::engine::attempt_error::AttemptError;
use crate::engine::read_entry::ReadEntry;
use crate::engine::store::store_access::ReadPreference;
use crate::error::{Error, Result};
use txn_protocol::document::{Image, View};
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::settle::SingleOutcome;
use txn_store::Key;

/// Reads committed content, without a transaction and without locks.
///
/// By default a reader waits for no transaction. A reader writes nothing. Each document is read by
/// itself, so that several reads are no snapshot. By default any copy answers. With replicas, two
/// reads of one document may therefore go back in time. [`Reader::verified`] asks the primary.
///
/// A reader proves nothing by writes. So a reader may return a commit whose acknowledgement is
/// still under way. If the primary crashes at that moment and loses the commit, the reader has
/// returned content that was never committed. A transaction with
/// [`ReadMode::Lock`](crate::ReadMode::Lock) that writes is not exposed to this case.
///
/// ```
/// # use txn_core::{Collection, Domain, Error, Raw};
/// # async fn look(domain: &Domain, stock: &Collection<Raw>) -> Result<(), Error> {
/// let shelf = domain.reader().get(stock, "apple").await?;
/// let current = domain.reader().verified().get_many(stock, ["apple", "pear"]).await?;
/// # let _ = (shelf, current);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    domain: &'a Domain,
    from: ReadPreference,
}

/// A document as a [`Reader`] saw it, for [`Domain::compare_and_set`].
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// The content; `None` if the document does not exist.
    pub value: Option<T>,
    key: Key,
    entry: ReadEntry,
}

impl<T> Versioned<T> {
    /// Returns the version of the commit that wrote the content.
    ///
    /// `None` if no transaction wrote the content.
    #[must_use]
    pub fn commit_version(&self) -> Option<CommitVersion> {
        self.entry.observed.commit_version
    }
}

/// The result of [`Domain::compare_and_set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareAndSet {
    /// The document was written, with this version.
    Written(CommitVersion),
    /// The content has changed since it was read. Nothing was written: read the document again.
    Mismatch,
}

impl Domain {
    /// Returns a [`Reader`] of committed content.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        Reader { domain: self, from: ReadPreference::AnyCopy }
    }

    /// Writes one document if its content is still what was read.
    ///
    /// The comparison covers the logical version: the commit that wrote the content, and every byte
    /// of the content. A lock that another transaction took and released in between does not
    /// matter.
    ///
    /// The cost is one conditional write, and one more request before the write if `snapshot` is
    /// not fresh. In three cases the write takes a transaction. The transaction reads the document
    /// again, and may write a record:
    /// - A transaction holds the document, or the document was written or locked since it was read.
    ///   The transaction waits for the holder, and recovers a dead holder.
    /// - No transaction has written the document yet. Such a document has no list of commits, which
    ///   could settle a write without a record.
    /// - The collection keeps its history ([`History::enable`](crate::History::enable)).
    ///
    /// The value replaces the whole content. Fields that the type does not know are lost.
    /// [`Transaction::update`](crate::Transaction::update) keeps them.
    ///
    /// ```
    /// # use txn_core::{Collection, CompareAndSet, Domain, Error, Raw};
    /// # async fn close(domain: &Domain, orders: &Collection<Raw>) -> Result<(), Error> {
    /// let read = domain.reader().read(orders, "order-1").await?;
    /// let closed = Raw::new(r#"{"state": "closed"}"#);
    /// match domain.compare_and_set(orders, &read, &closed).await? {
    ///     CompareAndSet::Written(version) => println!("written as {version}"),
    ///     CompareAndSet::Mismatch => println!("changed since the read"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the value cannot be stored, or the
    ///   document did not exist. Insert a new document in a transaction.
    /// - [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if other transactions held the
    ///   document until the deadline.
    /// - [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) if the outcome of the write is unknown.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the write may happen or not.
    pub async fn compare_and_set<C: Codec>(
        &self,
        collection: &Collection<C>,
        snapshot: &Versioned<C::Value>,
        value: &C::Value,
    ) -> Result<CompareAndSet> {
        let key = &snapshot.key;
        if key.collection != collection.name {
            return Err(Error::invalid(format!("it is no document of {}", collection.name)).at(key));
        }
        let image = Collection::<C>::encode(key, value)?;
        if snapshot.entry.observed.image.is_none() {
            let message = "there is no document to compare with: insert it in a transaction";
            return Err(Error::invalid(message).at(key));
        }
        self.set_entry(key, &snapshot.entry, image).await
    }
}

impl Domain {
    fn set_entry<'a>(
        &'a self,
        key: &'a Key,
        entry: &'a ReadEntry,
        image: Image,
    ) -> BoxFuture<'a, Result<CompareAndSet>> {
        Box::pin(async move {
            match self.set_single(key, entry, &image).await? {
                Some(written) => Ok(CompareAndSet::Written(written)),
                None => self.compare_and_put(key, entry, &image).await,
            }
        })
    }

    /// Replaces the read content by one conditional write, without a record.
    ///
    /// `None` if the write needs a record, or the document has changed. Then nothing was written,
    /// and nothing will be.
    async fn set_single(
        &self,
        key: &Key,
        entry: &ReadEntry,
        image: &Image,
    ) -> Result<Option<CommitVersion>> {
        let engine = &self.engine;
        let View::Present { stored, .. } = &entry.view else { return Ok(None) };
        if stored.lock.is_some() || engine.histories.of(&key.collection).is_some() {
            return Ok(None);
        }
        if stored.commit_version.is_none() {
            cov_mark::hit!(plain_document_is_set_by_a_record);
            return Ok(None);
        }
        let deadline = engine.context.deadline(engine.context.config.timeout);
        let written = async {
            let commit = engine
                .time
                .commit_version(None, stored.commit_version)
                .await
                .map_err(|error| error.at(key))?;
            match engine.singles.write_single(key, entry, image, commit, &deadline).await? {
                SingleOutcome::Committed => Ok(Some(commit)),
                SingleOutcome::Overtaken => Ok(None),
            }
        };
        written.await.map_err(AttemptError::into_error)
    }

    /// Compares and writes in a transaction.
    ///
    /// A conflict of the store shows only a changed store version, which a lock changes, too. So
    /// the transaction compares commit version and content.
    async fn compare_and_put(
        &self,
        key: &Key,
        entry: &ReadEntry,
        image: &Image,
    ) -> Result<CompareAndSet> {
        let (observed, options) =
            (&entry.observed, Options::default().with_lock_mode(LockMode::AtCommitUngrouped));
        let written = self.run::<_, Error, _>(&options, async |tx| {
            let images = tx.images(std::slice::from_ref(key)).await?;
            let version = tx.attempt().version(key)?;
            let is_same =
                images.first() == Some(&observed.image) && version == observed.commit_version;
            if is_same {
                tx.attempt().buffer(key, Edit::Put(image.clone()))?;
            }
            Ok(is_same)
        });
        let committed = written.await?;
        match committed.receipt.commit_version {
            Some(commit) if committed.value => Ok(CompareAndSet::Written(commit)),
            _ => Ok(CompareAndSet::Mismatch),
        }
    }
}

impl Reader<'_> {
    /// Makes each read current.
    ///
    /// The reader then asks the primary, and waits for an undecided transaction that holds the
    /// document. Each read is a read-only transaction of one document. While no primary crashes,
    /// the read is strictly serializable with all other transactions. A read fails with
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if the holder is undecided at the
    /// deadline.
    #[must_use]
    pub fn verified(mut self) -> Self {
        self.from = ReadPreference::Primary;
        self
    }

    /// Reads a document; `None` if the document does not exist.
    ///
    /// # Errors
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not answer in
    ///   time.
    /// - [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the content is not a `C::Value`.
    pub async fn get<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Option<C::Value>> {
        Ok(self.read(collection, id).await?.value)
    }

    /// Reads documents in one round trip: one answer per id, in order.
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

    /// Reads a document for a later [`Domain::compare_and_set`].
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub async fn read<C: Codec>(
        &self,
        collection: &Collection<C>,
        id: impl Into<DocumentId>,
    ) -> Result<Versioned<C::Value>> {
        let mut snapshots = self.snapshots::<C>(vec![collection.key(id)]).await?;
        snapshots.pop().ok_or_else(|| Error::unavailable("the store gave no answer"))
    }

    async fn snapshots<C: Codec>(&self, keys: Vec<Key>) -> Result<Vec<Versioned<C::Value>>> {
        let entries = self.entries(&keys).await?;
        let snapshot = |(key, entry): (Key, ReadEntry)| {
            let value = Collection::<C>::decode(&key, entry.observed.image.as_ref())?;
            Ok(Versioned { value, key, entry })
        };
        keys.into_iter().zip(entries).map(snapshot).collect()
    }

    fn entries<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<ReadEntry>>> {
        let engine = &self.domain.engine;
        let timeout = engine.context.config.timeout;
        Box::pin(async move {
            engine.reads.check_readable(keys)?;
            let deadline = engine.context.deadline(timeout);
            let read = async {
                match self.from {
                    ReadPreference::AnyCopy => engine.reads.read_committed(keys, &deadline).await,
                    ReadPreference::Primary => {
                        engine.reads.read_verified(keys, &enclosing(), &deadline).await
                    }
                }
            };
            engine.context.within(timeout, read).await.map_err(AttemptError::into_error)
        })
    }
}
