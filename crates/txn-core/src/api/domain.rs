//! A domain: one name space of transactions over the collections of a store.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::api::collection::{Codec, Collection, Raw};
use crate::api::transaction::Transaction;
use crate::attempt::{Attempt, Manner, Receipt};
use crate::config::{Config, Options};
use crate::engine::Engine;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::claims::IfMissing;
use crate::engine::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::group::{Attempts, Groups, Told};
use crate::store::Store;
use txn_protocol::ids::AttemptId;

/// What everything begins with: a handle of a domain, for transactions, readers and upkeep; cheap to clone. All clones
/// share one set of tasks, ended by [`Domain::shutdown`].
#[derive(Clone, Debug)]
pub struct Domain {
    pub(crate) engine: Arc<Engine>,
    /// Where transactions are composed, if they are.
    pub(crate) groups: Option<Arc<Groups>>,
}

/// What a transaction runs: a closure `async |tx| { … }`, which borrows what it captures, or an `async fn` of a
/// `&Transaction`. It may be called more than once.
///
/// An `async move |tx|` that captures anything does not compile, not even with captured references. So
/// the block around it owns, and the closure borrows; what it wants to give away, it clones:
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
/// Implemented for every such closure and function; the trait only spells out what the compiler needs to know to
/// spawn it.
pub trait TransactionFn<'t, T, E>:
    AsyncFn(&'t Transaction) -> Result<T, E> + Fn(&'t Transaction) -> Self::Future
{
    /// What a call returns.
    type Future: Future<Output = Result<T, E>> + Send;
}

impl<'t, T, E, F, R> TransactionFn<'t, T, E> for F
where
    F: AsyncFn(&'t Transaction) -> Result<T, E> + Fn(&'t Transaction) -> R,
    R: Future<Output = Result<T, E>> + Send,
{
    type Future = R;
}

/// What a transaction returned, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T> {
    /// What the closure returned.
    pub value: T,
    /// How it ended.
    pub receipt: Receipt,
}

/// Why an attempt did not commit.
enum Stopped<E> {
    /// The transaction may try again.
    Retry(RetryReason),
    /// What its caller is told.
    Fail(E),
}

/// With whom an attempt may be composed.
#[derive(Clone, Copy)]
struct Others<'a> {
    groups: &'a Arc<Groups>,
    attempts: &'a Attempts,
    /// An earlier attempt of the transaction failed.
    is_retry: bool,
}

/// A transaction goes by itself, and locks as it reads, after this many attempts with others that had to start again.
const ATTEMPTS_WITH_OTHERS: u16 = 8;

/// How often a group may have gone without a transaction whose closure came late.
const MOST_LATE: u32 = 3;

/// A read-only transaction locks its reads after this many attempts that had to start again.
const READ_ONLY_ATTEMPTS: u16 = 3;

impl Domain {
    /// The name of the domain.
    #[must_use]
    pub fn name(&self) -> &str {
        self.engine.table.domain()
    }

    /// The name of a collection that belongs to this domain alone, such as `shop-locks`. In the domain's own name a `-` is
    /// written `.`, so that privileges on `shop-*` do not reach the collections of the domain `shop-eu`.
    #[must_use]
    pub fn collection_name(&self, of: &str) -> String {
        self.engine.table.collection_name(of)
    }

    /// The settings that the domain was opened with: whatever is built on it takes clock and randomness from here.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.engine.config
    }

    /// The store behind the domain, for looking through collections by [`Store::scan`]. A scan shows candidates: read
    /// those that matter by a [`Reader`](crate::Reader) or in a transaction. Whatever else writes to documents of the
    /// domain goes behind the engine's back.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.engine.documents()
    }

    /// Opens a collection that exists, and claims it for this domain. `C` is [`Typed`](crate::Typed) for serde
    /// values, or [`Raw`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if it does not exist, belongs to another domain, or cannot serve
    /// transactions: the message names the remedy.
    pub async fn collection<C: Codec>(&self, name: &str) -> Result<Collection<C>> {
        self.open_collection(name, IfMissing::Fail).await
    }

    /// Opens a collection of raw JSON that exists, and claims it for this domain.
    ///
    /// # Errors
    /// As [`Domain::collection`].
    pub async fn raw_collection(&self, name: &str) -> Result<Collection<Raw>> {
        self.open_collection(name, IfMissing::Fail).await
    }

    /// Opens a collection, and makes it if it is missing, with `mappings` in the words of the store; stores without
    /// mappings ignore them. A collection that exists is left as it is, but for this: where both it and the mappings are strict,
    /// it gets the fields that it lacks.
    ///
    /// On Elasticsearch and OpenSearch this is a mapping as the servers' API takes it, or the body of a request that
    /// makes an index, with settings beside the mapping. The fields alone, without `properties` around them, are
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
    /// As [`Domain::collection`]; [`ErrorKind::Misconfigured`] for mappings that the store does not take.
    pub async fn create_collection<C: Codec>(
        &self,
        name: &str,
        mappings: Option<&str>,
    ) -> Result<Collection<C>> {
        self.open_collection(name, IfMissing::Create(mappings)).await
    }

    /// The same for a system on top of transactions, such as locks: nothing else writes to the collection. One that is missing
    /// is made without anything that an index template of the servers adds: one shard, one replica as soon as there is a second
    /// node, no pipeline, no lifecycle.
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
        let deadline = engine.deadline(engine.config.deadline);
        let opened = engine.open_collection(name, if_missing, &deadline).await;
        let info = opened.map_err(AttemptError::into_error)?;
        Ok(Collection::new(info.name))
    }

    /// Runs a transaction with the default options: see [`Domain::run`].
    ///
    /// # Errors
    /// The closure's own error, or one of the engine.
    pub async fn transact<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        F: for<'t> TransactionFn<'t, T, E>,
        E: From<Error>,
    {
        Ok(self.run(&Options::default(), closure).await?.value)
    }

    /// Runs a transaction: calls the closure and commits, again as long as others are in the way and
    /// the deadline and the attempt limit allow it. The age is kept over the attempts, so
    /// the transaction gets through once it is the oldest.
    ///
    /// The first attempt is optimistic (it locks at the end), later ones lock at each read; where
    /// transactions are composed ([`Config::groups`](crate::Config::groups)), the first eight
    /// attempts are optimistic. Errors of the closure are returned once its reads are known to
    /// belong together; nothing is written then.
    ///
    /// A transaction that is begun inside the closure is one of its own, and commits for itself. It must not use what
    /// the outer one has locked: that is refused, and where it waits for a third transaction that waits for the outer
    /// one, both wait until the outer one comes to its limit
    /// ([`Config::transaction_limit`](crate::Config::transaction_limit)) and starts again.
    ///
    /// Dropping the returned future before the commit began rolls back in the background; after that the
    /// commit goes on.
    ///
    /// # Errors
    /// The closure's own error, or one of the engine.
    pub async fn run<T, E, F>(&self, options: &Options, closure: F) -> Result<Committed<T>, E>
    where
        F: for<'t> TransactionFn<'t, T, E>,
        E: From<Error>,
    {
        let engine = &self.engine;
        // A shutdown waits for it, with all its attempts.
        let _running = engine.lifecycle.running();
        self.check_open()?;
        let wait = engine.config.deadline_of(options)?;
        let deadline = engine.now() + wait;
        // The place of one that is inside of another would be that one's.
        let _place = match crate::attempt::nesting::enclosing().is_empty() {
            true => Some(engine.hot.admission.enter(&*engine.config.clock, wait).await?),
            false => None,
        };
        let logical = engine.start_id();
        let _contender = engine.hot.board.contend(logical.age());
        let attempts = Attempts::default();
        let mut groups = self.groups.as_ref();
        let mut tries = 0;
        let mut pessimistic = options.pessimistic && !options.read_only;
        let mut options = options.clone();
        loop {
            let tid = logical.with_attempt(attempts.next());
            let manner = Manner { pessimistic, recalls: groups.is_some(), ..Manner::default() };
            let tx = self.start(tid, &options, manner, deadline)?;
            tries += 1;
            let others =
                groups.map(|groups| Others { groups, attempts: &attempts, is_retry: tries > 1 });
            let reason = match self.attempt(&tx, &closure, others).await {
                Ok((value, receipt)) => {
                    tx.tell_committed();
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
            let goes_on_with_others =
                groups.is_some() && tries < ATTEMPTS_WITH_OTHERS && !tx.attempt().goes_by_itself();
            if matches!(reason, RetryReason::LeftGroup) {
                groups = None;
            } else if tx.attempt().has_writes() {
                pessimistic |= !goes_on_with_others;
                groups = groups.filter(|_| goes_on_with_others);
            } else {
                groups = groups.filter(|_| !matches!(reason, RetryReason::Waited(_)));
                // By then others change what it reads, or lock it again, faster than it can look; it locks as it reads.
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
                // The next attempt tells that the deadline passed.
                let until = Deadline::until(deadline);
                let _ = engine.wait_for_turn(slice::from_ref(document), &until).await;
                engine.hot.board.keep([document], engine.now());
            }
        }
    }

    /// One attempt: runs the closure, and commits what it did, by itself or composed with others.
    async fn attempt<T, E, F>(
        &self,
        tx: &Transaction,
        closure: &F,
        others: Option<Others<'_>>,
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
        let apply = || {
            let Others { groups, attempts, is_retry } = others.filter(|_| !tx.is_doomed())?;
            groups.apply(tx.attempt(), attempts, is_retry)
        };
        let Some(mut waiting) = apply() else {
            return Self::ended(tid, value, tx.conclude().await);
        };
        let mut late = 0;
        let left = || Err(AttemptError::Retry(RetryReason::LeftGroup));
        let result = loop {
            match waiting.told().await {
                Told::Ended(result) => break result,
                Told::RunAgain(rerun) => {
                    tx.run_again();
                    tx.attempt().run_again_on(rerun.basis());
                    value = match run().await {
                        Ok(value) if !tx.is_doomed() => value,
                        // It failed on what others have not committed yet: that is nobody's to tell.
                        _ => break left(),
                    };
                    if !rerun.ran() {
                        late += 1;
                        waiting = match apply() {
                            Some(waiting) if late <= MOST_LATE => waiting,
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

    /// The closure failed. Its error is returned once its reads are known to belong together: it may rest on a state
    /// that never was.
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

    /// Begins a transaction that the caller commits or rolls back, without retries. Dropping the handle rolls
    /// back in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the domain is shut down; [`ErrorKind::Invalid`] for options that cannot work.
    pub fn begin(&self, options: &Options) -> Result<Transaction> {
        self.check_open()?;
        let deadline = self.engine.now() + self.engine.config.deadline_of(options)?;
        let manner =
            Manner { pessimistic: options.pessimistic, stepped: true, ..Manner::default() };
        let tid = self.engine.start_id();
        let contender = self.engine.hot.board.contend(tid.age());
        Ok(self.start(tid, options, manner, deadline)?.with_contender(contender))
    }

    /// New transactions are refused once the domain shuts down; those that run go on.
    fn check_open(&self) -> Result<()> {
        // One that is nested in a closure belongs to what runs.
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
        manner: Manner,
        deadline: Duration,
    ) -> Result<Transaction> {
        if let Some(metadata) = &options.metadata {
            let valid = serde_json::from_str::<serde::de::IgnoredAny>(metadata);
            valid.map_err(|e| Error::invalid(format!("the metadata is not JSON: {e}")))?;
        }
        let engine = self.engine.clone();
        let attempt = Attempt::begin(engine, tid, options.clone(), manner, deadline);
        Ok(Transaction::new(attempt))
    }

    /// Refuses new transactions, lets those that run go on, also in further attempts, and waits until they have
    /// committed or rolled back and are applied, at most for `deadline`. Returns whether everything that this domain
    /// ever committed here is applied; what is not is finished by whoever meets it.
    ///
    /// # Cancel safety
    /// Dropped, the domain stays closed and its tasks go on.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.engine.lifecycle.close();
        let drained = async {
            self.engine.lifecycle.ended().await;
            while self.engine.live_attempts.live_count() > 0 {
                self.engine.config.clock.sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            () = drained => !self.engine.lifecycle.has_left_over(),
            () = self.engine.config.clock.sleep(deadline) => false,
        }
    }
}
