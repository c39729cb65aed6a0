//! `Domain` runs closures as transactions over the collections of a store.

mod barrier;
mod opening;
mod outcome;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::api::admin::Admin;
use crate::api::collection::{Codec, Collection, Raw};
use crate::api::shutdown::shut_down;
use crate::api::transaction::Transaction;
use crate::attempt::{Attempt, AttemptMode, Receipt};
use crate::config::{Config, Options};
use crate::engine::Engine;
use crate::engine::admin::claims::IfMissing;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::group::{AttemptNumbers, Groups, Reply};
use crate::store::Store;
use txn_protocol::ids::AttemptId;

/// A handle of a domain, for transactions, readers and maintenance.
///
/// A clone is cheap. All clones share one set of tasks, which [`Domain::shutdown`] ends.
#[derive(Clone, Debug)]
pub struct Domain {
    pub(crate) engine: Arc<Engine>,
    /// The queue in which transactions are merged into groups, if groups are enabled.
    pub(crate) groups: Option<Arc<Groups>>,
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

/// The reason why an attempt did not commit.
enum Stopped<E> {
    /// The transaction may try again.
    Retry(RetryReason),
    /// The error for the caller.
    Fail(E),
}

/// The queue in which an attempt may join a group.
#[derive(Clone, Copy)]
struct Grouping<'a> {
    groups: &'a Arc<Groups>,
    attempts: &'a AttemptNumbers,
    /// An earlier attempt of the transaction failed.
    is_retry: bool,
}

/// After so many failed attempts in groups a transaction joins no group, and locks documents when
/// it reads them.
const ATTEMPTS_IN_GROUPS: u16 = 8;

/// A transaction leaves the queue after its closure missed so many groups.
const MOST_LATE_RUNS: u32 = 3;

/// A read-only transaction locks its reads after so many failed attempts.
const READ_ONLY_ATTEMPTS: u16 = 3;

impl Domain {
    /// The name of the domain.
    #[must_use]
    pub fn name(&self) -> &str {
        self.engine.table.domain()
    }

    /// Returns the name of a collection that only this domain uses, such as `shop-locks`.
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
        &self.engine.config
    }

    /// The store of the domain, for [`Store::scan`].
    ///
    /// A scan returns candidates. Read them with a [`Reader`](crate::Reader) or in a transaction.
    /// Never write to documents of the domain through the store: the engine does not see such
    /// writes.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.engine.documents()
    }

    /// Opens an existing collection, and claims it for this domain.
    ///
    /// `C` is [`Typed`](crate::Typed) for serde values, or [`Raw`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the collection does not exist, belongs to another domain, or
    /// cannot serve transactions. The message names the remedy.
    pub async fn collection<C: Codec>(&self, name: &str) -> Result<Collection<C>> {
        self.open_collection(name, IfMissing::Fail).await
    }

    /// Opens an existing collection of raw JSON, and claims it for this domain.
    ///
    /// # Errors
    /// As [`Domain::collection`].
    pub async fn raw_collection(&self, name: &str) -> Result<Collection<Raw>> {
        self.open_collection(name, IfMissing::Fail).await
    }

    /// Opens a collection, and creates it with `mappings` if it does not exist.
    ///
    /// Stores without mappings ignore `mappings`. An existing collection stays unchanged, with one
    /// exception: if both the collection and `mappings` are strict, missing fields are added.
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
    pub async fn create_collection<C: Codec>(
        &self,
        name: &str,
        mappings: Option<&str>,
    ) -> Result<Collection<C>> {
        self.open_collection(name, IfMissing::Create(mappings)).await
    }

    /// Opens or creates a collection of a system on top of transactions, such as locks.
    ///
    /// No other client writes to such a collection. A new collection ignores the index templates of
    /// the server: it has one shard, one replica as soon as there is a second node, no pipeline and
    /// no lifecycle.
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
        let engine = &self.engine;
        let deadline = engine.deadline(engine.config.timeout);
        let opened = engine.open_collection(name, if_missing, &deadline).await;
        let info = opened.map_err(AttemptError::into_error)?;
        Ok(Collection::new(info.name))
    }

    /// Runs a transaction with the default options. See [`Domain::run`].
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
    /// The first attempt locks at the commit. Later attempts lock each document when they read it.
    /// With groups ([`Config::group_commit`](crate::Config::group_commit)) the first eight attempts
    /// lock at the commit. If the closure returns an error, nothing is written. The engine returns
    /// this error after it has validated the reads of the closure.
    ///
    /// A transaction that the closure begins is independent, and commits by itself. The engine
    /// refuses a nested transaction that uses a locked document of the outer transaction. If the
    /// nested transaction waits for a third transaction, and that one waits for the outer one, all
    /// three wait until the outer one reaches
    /// [`Config::attempt_timeout`](crate::Config::attempt_timeout) and starts again.
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
        let engine = &self.engine;
        // A shutdown waits for this transaction, with all its attempts.
        let _running = engine.lifecycle.running();
        self.check_open()?;
        let wait = engine.config.deadline_of(options)?;
        let deadline = engine.now() + wait;
        // A nested transaction uses the permit of its outer transaction.
        let _place = match crate::attempt::nesting::enclosing().is_empty() {
            true => Some(engine.hot.admission.enter(&*engine.config.clock, wait).await?),
            false => None,
        };
        let logical = engine.start_id();
        let _contender = engine.hot.board.contend(logical.age());
        let attempts = AttemptNumbers::default();
        let mut groups = self.groups.as_ref();
        let mut tries = 0;
        let mut pessimistic = options.pessimistic && !options.read_only;
        let mut options = options.clone();
        loop {
            let tid = logical.with_attempt(attempts.next());
            let mode =
                AttemptMode { pessimistic, uses_cache: groups.is_some(), ..AttemptMode::default() };
            let tx = self.start(tid, &options, mode, deadline)?;
            tries += 1;
            let grouping =
                groups.map(|groups| Grouping { groups, attempts: &attempts, is_retry: tries > 1 });
            let reason = match self.attempt(&tx, &closure, grouping).await {
                Ok((value, receipt)) => {
                    tx.run_callbacks();
                    let receipt = Receipt { attempts: u32::from(tries), ..receipt };
                    return Ok(Committed { value, receipt });
                }
                Err(Stopped::Fail(error)) => return Err(error),
                Err(Stopped::Retry(reason)) => reason,
            };
            tx.attempt().roll_back(reason.to_string(), true).await;
            if let Some(document) = reason.document() {
                engine.hot.cache.was_stale(document, engine.now());
            }
            let stays_in_groups = groups.is_some()
                && tries < ATTEMPTS_IN_GROUPS
                && !tx.attempt().is_excluded_from_groups();
            if matches!(reason, RetryReason::LeftGroup) {
                groups = None;
            } else if tx.attempt().has_writes() {
                pessimistic |= !stays_in_groups;
                groups = groups.filter(|_| stays_in_groups);
            } else {
                groups = groups.filter(|_| !matches!(reason, RetryReason::Waited(_)));
                // Other transactions change or lock the reads faster than this one validates them,
                // so this one locks as it reads.
                let locks = tries >= READ_ONLY_ATTEMPTS;
                pessimistic |= locks;
                options.lock_reads |= locks;
            }
            let locks = tx.attempt().has_writes() || pessimistic;
            drop(tx);
            self.check_retry(tid, tries, deadline, &reason)?;
            if let RetryReason::Waited(document) = &reason
                && locks
            {
                let _wanted = engine.hot.board.want([document]);
                // The next attempt reports a passed deadline.
                let until = Deadline::until(deadline);
                let _ = engine.wait_for_turn(slice::from_ref(document), &until).await;
                engine.hot.board.keep([document], engine.now());
            }
        }
    }

    /// Runs the closure once, and commits its writes alone or in a group.
    async fn attempt<T, E, F>(
        &self,
        tx: &Transaction,
        closure: &F,
        grouping: Option<Grouping<'_>>,
    ) -> Result<(T, Receipt), Stopped<E>>
    where
        F: for<'t> TransactionFn<'t, T, E>,
        E: From<Error>,
    {
        let tid = tx.attempt().tid;
        let run = || {
            let span = tracing::debug_span!("attempt", %tid, attempt = tid.attempt());
            crate::attempt::nesting::within(tid, closure(tx)).instrument(span)
        };
        let mut value = match run().await {
            Ok(value) => value,
            Err(error) => return Err(self.examine(tx, error).await),
        };
        tx.confirm_aliases().await.map_err(|error| Stopped::Fail(error.into()))?;
        let enqueue = || {
            let Grouping { groups, attempts, is_retry } = grouping.filter(|_| !tx.is_doomed())?;
            groups.enqueue(tx.attempt(), attempts, is_retry)
        };
        let Some(mut waiting) = enqueue() else {
            return Self::ended(tid, value, tx.conclude().await);
        };
        let mut late = 0;
        let left = || Err(AttemptError::Retry(RetryReason::LeftGroup));
        let result = loop {
            match waiting.reply().await {
                Reply::Ended(result) => break result,
                Reply::RunAgain(rerun) => {
                    tx.run_again();
                    tx.attempt().restart_on(rerun.batch());
                    value = match run().await {
                        Ok(value) if !tx.is_doomed() => value,
                        // The run failed on uncommitted content of its group, so its error is not
                        // reported.
                        _ => break left(),
                    };
                    if !rerun.ran() {
                        late += 1;
                        waiting = match enqueue() {
                            Some(waiting) if late <= MOST_LATE_RUNS => waiting,
                            _ => break left(),
                        };
                    }
                }
            }
        };
        Self::ended(tid, value, result)
    }

    fn ended<T, E: From<Error>>(
        tid: AttemptId,
        value: T,
        result: Result<Receipt, AttemptError>,
    ) -> Result<(T, Receipt), Stopped<E>> {
        Err(match result {
            Ok(receipt) => return Ok((value, receipt)),
            Err(AttemptError::Retry(reason)) => Stopped::Retry(reason),
            // An unknown one-document write has no record that its tid could be asked for.
            Err(AttemptError::Fail(error)) if error.kind() == ErrorKind::Unknown => {
                Stopped::Fail(error.into())
            }
            Err(AttemptError::Fail(error)) => Stopped::Fail(error.in_transaction(tid).into()),
        })
    }

    /// Validates the reads of a closure that failed. An error that rests on reads of different
    /// states is not returned.
    async fn examine<E: From<Error>>(&self, tx: &Transaction, error: E) -> Stopped<E> {
        let why = match tx.examine().await {
            Ok(()) => "the application's own error".to_owned(),
            Err(AttemptError::Retry(reason)) => return Stopped::Retry(reason),
            Err(AttemptError::Fail(error)) => {
                tx.attempt().roll_back(error.to_string(), false).await;
                return Stopped::Fail(error.in_transaction(tx.attempt().tid).into());
            }
        };
        tx.attempt().roll_back(why, false).await;
        Stopped::Fail(error)
    }

    fn check_retry(
        &self,
        tid: AttemptId,
        attempt: u16,
        deadline: Duration,
        reason: &RetryReason,
    ) -> Result<()> {
        let engine = &self.engine;
        let give_up =
            |why: &str| Err(reason.clone().into_error(&format!("{why}: ")).in_transaction(tid));
        if attempt >= engine.config.max_attempts {
            return give_up(&format!("gave up after {attempt} attempts"));
        }
        if engine.now() >= deadline {
            return give_up(&format!("the deadline passed after {attempt} attempts"));
        }
        Ok(())
    }

    /// Begins a transaction that the caller commits or rolls back. The engine does not retry it.
    ///
    /// Dropping the handle rolls back in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the domain is shut down; [`ErrorKind::Invalid`] for options
    /// that cannot work.
    pub fn begin(&self, options: &Options) -> Result<Transaction> {
        self.check_open()?;
        let deadline = self.engine.now() + self.engine.config.deadline_of(options)?;
        let mode = AttemptMode {
            pessimistic: options.pessimistic,
            stepped: true,
            ..AttemptMode::default()
        };
        let tid = self.engine.start_id();
        let contender = self.engine.hot.board.contend(tid.age());
        Ok(self.start(tid, options, mode, deadline)?.with_contender(contender))
    }

    /// Refuses new transactions after the shutdown began.
    fn check_open(&self) -> Result<()> {
        // A nested transaction belongs to a running one.
        let nested = !crate::attempt::nesting::enclosing().is_empty();
        match self.engine.lifecycle.closing().is_cancelled() && !nested {
            true => Err(Error::unavailable("the domain is shutting down")),
            false => Ok(()),
        }
    }

    fn start(
        &self,
        tid: AttemptId,
        options: &Options,
        mode: AttemptMode,
        deadline: Duration,
    ) -> Result<Transaction> {
        if let Some(metadata) = &options.metadata {
            let valid = serde_json::from_str::<serde::de::IgnoredAny>(metadata);
            valid.map_err(|e| Error::invalid(format!("the metadata is not JSON: {e}")))?;
        }
        let engine = self.engine.clone();
        let attempt = Attempt::begin(engine, tid, options.clone(), mode, deadline);
        Ok(Transaction::new(attempt))
    }

    /// Refuses new transactions, and waits until the running ones have ended and are applied.
    ///
    /// Running transactions may retry. The wait ends after `deadline`. Returns whether all commits
    /// of this process are applied. Another process rolls the remaining commits forward.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the domain stays closed and its tasks continue.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        shut_down(&self.engine, deadline).await
    }
}
