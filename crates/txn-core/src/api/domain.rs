//! `Domain` runs closures as transactions over the collections of a store.

mod barrier;
pub(crate) mod idempotent;
pub(crate) mod load;
mod opening;
mod outcome;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tracing::Instrument;

use crate::api::admin::Admin;
use crate::api::collection::{Codec, Collection};
use crate::api::shutdown::shut_down;
use crate::api::transaction::Transaction;
use crate::api::transaction_run::{Next, TransactionRun, check_open};
use crate::attempt::{AttemptMode, Receipt, nesting};
use crate::config::{Config, Options};
use crate::engine::SharedEngine;
use crate::engine::admin::collections::IfMissing;
use crate::engine::attempt_error::AttemptError;
use crate::engine::signals::transaction_span::TransactionSpan;
use crate::error::{Error, Result};
use crate::group::Groups;
use txn_store::Store;

/// A handle of a domain, for transactions, readers and maintenance.
///
/// A clone is cheap. All clones share one set of tasks, which [`Domain::shutdown`] ends.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use txn_core::store::MemoryStore;
/// use txn_core::{Config, Domain, Error, Raw};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let store = Arc::new(MemoryStore::new());
/// let domain = Domain::open_or_create(store, "shop", Config::default()).await?;
/// let stock = domain.create_collection::<Raw>("stock", None).await?;
/// domain.transact(async |tx| tx.put(&stock, "apple", &Raw::new(r#"{"left": 10}"#))).await?;
/// let all_ended = domain.shutdown(Duration::from_secs(5)).await;
/// assert!(all_ended);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Domain {
    pub(crate) engine: SharedEngine,
    /// The queue that merges transactions into groups, if groups are enabled.
    pub(crate) groups: Option<Arc<Groups>>,
    /// The collection with the answers of idempotent transactions, once it is open.
    answers: Arc<OnceCell<Arc<str>>>,
}

/// The closure of a transaction: `async |tx| { … }`, or an `async fn` of a `&Transaction`.
///
/// The closure borrows its captures, and may run more than once. An `async move |tx|` with captures
/// does not compile. Let the surrounding block own the values, borrow them in the closure, and
/// clone the values that the closure returns:
///
/// ```
/// # use std::sync::Arc;
/// # use txn_core::{Collection, Domain, Error, Raw};
/// # async fn place(domain: Domain, orders: Collection<Raw>, id: String, order: Arc<str>) -> Result<String, Box<dyn std::error::Error>> {
/// let task = tokio::spawn(async move {
///     domain
///         .transact(async |tx| {
///             if tx.get(&orders, &id).await?.is_none() {
///                 tx.insert(&orders, &id, &Raw::new(&*order))?;
///             }
///             Ok::<_, Error>(id.clone())
///         })
///         .await
/// });
/// # Ok(task.await??)
/// # }
/// ```
///
/// The trait is implemented for each such closure and function. The trait states that the future is
/// `Send`, so that a transaction can be spawned.
pub trait TransactionFn<'t, T, E>:
    AsyncFn(&'t Transaction) -> Result<T, E> + Fn(&'t Transaction) -> Self::Future
{
    /// The future of one call.
    type Future: Future<Output = Result<T, E>> + Send;
}

impl<'t, T, E, F, R> TransactionFn<'t, T, E> for F
where
    F: AsyncFn(&'t Transaction) -> Result<T, E> + Fn(&'t Transaction) -> R,
    R: Future<Output = Result<T, E>> + Send,
{
    type Future = R;
}

/// The value and the receipt of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T> {
    /// The value that the closure returned.
    pub value: T,
    /// The tid, the commit version and the number of attempts.
    pub receipt: Receipt,
}

impl Domain {
    /// The name of the domain.
    #[must_use]
    pub fn name(&self) -> &str {
        self.engine.table.domain()
    }

    /// Returns the name of a collection of this domain, such as `shop-locks`.
    ///
    /// Only this domain uses the collection.
    ///
    /// A `-` in the name of the domain becomes `.`, so that privileges on `shop-*` do not include
    /// the collections of the domain `shop-eu`.
    #[must_use]
    pub fn collection_name(&self, of: &str) -> String {
        self.engine.table.collection_name(of)
    }

    /// Returns the operator's calls: inspection, recovery, repair and removal.
    #[must_use]
    pub fn admin(&self) -> Admin<'_> {
        Admin::new(&self.engine)
    }

    /// The settings of the domain. Systems on top of the domain take clock and randomness from
    /// them.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.engine.context.config
    }

    /// The store of the domain, for [`Store::scan`].
    ///
    /// A scan returns candidates. Read them with a [`Reader`](crate::Reader) or in a transaction.
    /// Never write to documents of the domain through the store: the engine does not see such
    /// writes.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.engine.store.documents()
    }

    /// Opens an existing collection, and claims it for this domain.
    ///
    /// `C` is [`Typed`](crate::Typed) for serde values, or [`Raw`](crate::Raw).
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the collection does not exist, belongs to another domain, or
    /// cannot serve transactions. The message names the remedy.
    ///
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    pub async fn collection<C: Codec>(&self, name: &str) -> Result<Collection<C>> {
        self.open_collection(name, IfMissing::Fail).await
    }

    /// Opens a collection, or creates a missing one with `mappings`.
    ///
    /// Stores without mappings ignore `mappings`. An existing collection stays unchanged, with one
    /// exception. If both the collection and `mappings` are strict, missing fields are added.
    ///
    /// On Elasticsearch and OpenSearch `mappings` is a mapping, or the body of a request that
    /// creates an index with settings and mappings. Fields without `properties` around them are
    /// refused.
    ///
    /// ```
    /// # use txn_core::{Domain, Error, Raw};
    /// # async fn open(domain: &Domain) -> Result<(), Error> {
    /// let stock = r#"{"properties": {"left": {"type": "integer"}}}"#;
    /// let orders = r#"{
    ///     "settings": {"number_of_shards": 3, "number_of_replicas": 1},
    ///     "mappings": {"properties": {"state": {"type": "keyword"}}}
    /// }"#;
    /// let stock = domain.create_collection::<Raw>("stock", Some(stock)).await?;
    /// let orders = domain.create_collection::<Raw>("orders", Some(orders)).await?;
    /// # let _ = (stock, orders);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Domain::collection`]; [`ErrorKind::Misconfigured`] for mappings that the store refuses.
    ///
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    pub async fn create_collection<C: Codec>(
        &self,
        name: &str,
        mappings: Option<&str>,
    ) -> Result<Collection<C>> {
        self.open_collection(name, IfMissing::Create(mappings)).await
    }

    /// Opens or creates a collection of a system, such as locks.
    ///
    /// A system works on top of transactions.
    ///
    /// No other client writes to such a collection. A new collection ignores the index templates of
    /// the server. Such a collection has one shard, no pipeline and no lifecycle, and one replica
    /// as soon as there is a second node.
    ///
    /// # Errors
    /// As [`Domain::create_collection`].
    pub async fn create_system_collection<C: Codec>(
        &self,
        name: &str,
        mappings: &str,
    ) -> Result<Collection<C>> {
        self.open_collection(name, IfMissing::CreateForSystem(mappings)).await
    }

    async fn open_collection<C: Codec>(
        &self,
        name: &str,
        if_missing: IfMissing<'_>,
    ) -> Result<Collection<C>> {
        Ok(Collection::new(self.claim(name, if_missing).await?))
    }

    /// Opens a collection, and returns its name in the store.
    fn claim<'a>(
        &'a self,
        name: &'a str,
        if_missing: IfMissing<'a>,
    ) -> BoxFuture<'a, Result<Arc<str>>> {
        let engine = &self.engine;
        Box::pin(async move {
            let deadline = engine.context.deadline(engine.context.config.timeout);
            let opened = engine.collections.open_collection(name, if_missing, &deadline).await;
            Ok(opened.map_err(AttemptError::into_error)?.name)
        })
    }

    /// Runs a transaction with the default options. See [`Domain::run`].
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use txn_core::{Collection, Domain, Error, Typed};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Shelf { left: u32 }
    /// enum Refused {
    ///     SoldOut,
    ///     Failed(Error),
    /// }
    ///
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Self {
    ///         Self::Failed(error)
    ///     }
    /// }
    ///
    /// async fn take(domain: &Domain, stock: &Collection<Typed<Shelf>>) -> Result<u32, Refused> {
    ///     domain
    ///         .transact(async |tx| {
    ///             let Some(mut shelf) = tx.get(stock, "apple").await? else {
    ///                 return Err(Refused::SoldOut);
    ///             };
    ///             shelf.left = shelf.left.checked_sub(1).ok_or(Refused::SoldOut)?;
    ///             tx.put(stock, "apple", &shelf)?;
    ///             Ok(shelf.left)
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of the closure, or an error of the engine.
    pub async fn transact<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        F: for<'t> TransactionFn<'t, T, E>,
        E: From<Error>,
    {
        Ok(self.run(&Options::default(), closure).await?.value)
    }

    /// Runs a transaction: calls the closure, commits, and retries after a conflict.
    ///
    /// Retries end with the deadline and the attempt limit. A transaction keeps its age over all
    /// attempts, so that it wins each conflict once it is the oldest.
    ///
    /// Unless [`Options::with_lock_mode`] says otherwise, the first attempt locks at the commit.
    /// Later attempts with writes lock each document when they read it. A transaction in groups
    /// ([`Config::with_group_commit`](crate::Config::with_group_commit)) does so only after eight
    /// attempts. If the closure returns an error, nothing is written. The engine returns
    /// this error after it has validated the reads of the closure.
    ///
    /// A transaction that the closure begins is independent, and commits by itself. The engine
    /// refuses a nested transaction that uses a locked document of the outer transaction. If the
    /// nested transaction waits for a third transaction, and that one waits for the outer one, all
    /// three wait until the outer one reaches
    /// [`Config::with_attempt_timeout`](crate::Config::with_attempt_timeout) and starts again.
    ///
    /// ```
    /// # use txn_core::{Collection, Domain, Error, Options, Raw, WaitFor};
    /// # async fn place(domain: &Domain, orders: &Collection<Raw>) -> Result<(), Error> {
    /// // Returns when plain searches see the order.
    /// let options = Options::default().with_label("place-order").with_wait_for(WaitFor::Refresh);
    /// let order = Raw::new(r#"{"article": "apple"}"#);
    /// let done = domain.run(&options, async |tx| tx.insert(orders, "order-1", &order)).await?;
    /// println!("{} attempts, version {:?}", done.receipt.attempts, done.receipt.commit_version);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// If the returned future is dropped before the commit began, the transaction rolls back in the
    /// background. Later the commit continues.
    ///
    /// # Errors
    /// The error of the closure, or an error of the engine.
    pub async fn run<T, E, F>(&self, options: &Options, closure: F) -> Result<Committed<T>, E>
    where
        F: for<'t> TransactionFn<'t, T, E>,
        E: From<Error>,
    {
        let mut run = TransactionRun::begin(&self.engine, self.groups.as_ref(), options).await?;
        let mut tx = run.start_attempt()?;
        loop {
            let tid = tx.attempt().tid;
            let span = tracing::debug_span!(parent: tx.attempt().span(), "attempt", %tid, attempt = tid.attempt());
            tx = match nesting::within(tid, closure(&tx)).instrument(span).await {
                Ok(value) => match run.closure_returned(tx).await? {
                    Next::Committed(receipt) => return Ok(Committed { value, receipt }),
                    Next::Rerun(tx) | Next::Retry(tx) => tx,
                },
                Err(error) => match run.closure_failed(tx).await? {
                    Some(tx) => tx,
                    None => return Err(error),
                },
            };
        }
    }

    /// Begins a transaction that the caller commits or rolls back. The engine does not retry it.
    ///
    /// Dropping the handle rolls back in the background.
    ///
    /// ```
    /// # use txn_core::{Collection, Domain, Error, Options, Raw};
    /// # async fn remove(domain: &Domain, orders: &Collection<Raw>) -> Result<(), Error> {
    /// let tx = domain.begin(&Options::default())?;
    /// match tx.get(orders, "order-1").await? {
    ///     Some(_) => {
    ///         tx.delete(orders, "order-1")?;
    ///         tx.commit().await?;
    ///     }
    ///     None => tx.rollback().await,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the domain is shut down; [`ErrorKind::Invalid`] for options
    /// that cannot work.
    ///
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Invalid`]: crate::ErrorKind::Invalid
    pub fn begin(&self, options: &Options) -> Result<Transaction> {
        check_open(&self.engine)?;
        let deadline =
            self.engine.context.now() + self.engine.context.config.timeout_of(options)?;
        let mode = AttemptMode {
            pessimistic: options.locks_at_read(),
            is_manual: true,
            ..AttemptMode::default()
        };
        let tid = self.engine.time.start_id();
        let contender = self.engine.hot.board.contend(tid.age());
        let trace = TransactionSpan::open(self.name(), tid, options.label.as_deref());
        let tx = Transaction::start(&self.engine, tid, options, mode, deadline, trace.span())?;
        Ok(tx.begun_by_hand(contender, trace))
    }

    /// Refuses new transactions, and waits for the end of the running ones.
    ///
    /// The wait includes the applies, and takes at most `timeout`. Running transactions may retry.
    ///
    /// Returns whether this process has applied all of its commits. `false` also if it once left
    /// one to the janitors, which roll such commits forward.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the domain stays closed and its tasks continue.
    pub async fn shutdown(&self, timeout: Duration) -> bool {
        shut_down(&self.engine, timeout).await
    }
}
