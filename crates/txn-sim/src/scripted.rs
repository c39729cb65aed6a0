//! A store whose calls follow the script of a test.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use txn_store::{
    CollectionIdentity, CollectionInfo, CollectionSpec, Cursor, Filter, Key, Layer, Outcome, Page,
    Read, Store, StoreError, StoreErrorKind, Write,
};

/// The error of a closed index.
const CLOSED: &str = "index_closed_exception";

/// The effect and the answer of one write.
#[derive(Clone, Debug)]
pub enum Fate {
    /// Carries the write out.
    Pass,
    /// Carries the write out, and returns this answer instead.
    AnswerWith(Outcome),
    /// Returns this answer without carrying the write out.
    RefuseWith(Outcome),
    /// Carries the write out, and never answers. Later writes of the call are lost.
    Hang,
    /// Carries the write out, and panics. Later writes of the call are lost.
    Panic,
}

/// A call to a store, as a script sees the call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Call<'a> {
    /// A call of [`Store::get_many`].
    GetMany(&'a [Key]),
    /// A call of [`Store::read_primary`].
    ReadPrimary(&'a [Key]),
    /// A call of [`Store::write_many`].
    WriteMany(&'a [Write]),
    /// A call of [`Store::refresh`].
    Refresh(&'a str),
    /// A call of [`Store::scan`].
    Scan(&'a str, &'a Filter),
    /// A call of [`Store::open_collection`].
    OpenCollection(&'a CollectionSpec),
    /// A call of [`Store::identify`].
    Identify(&'a str),
    /// A call of [`Store::server_time`].
    ServerTime,
    /// Any other call, on one collection or on all.
    Other(Option<&'a str>),
}

impl<'a> Call<'a> {
    /// Whether the call reads or writes a matching document.
    pub fn has(self, matches: impl Fn(&Key) -> bool) -> bool {
        match self {
            Self::GetMany(keys) | Self::ReadPrimary(keys) => keys.iter().any(matches),
            Self::WriteMany(writes) => writes.iter().any(|write| matches(&write.key)),
            _ => false,
        }
    }

    /// Whether the call has a matching write.
    pub fn writes(self, matches: impl Fn(&Write) -> bool) -> bool {
        matches!(self, Self::WriteMany(writes) if writes.iter().any(matches))
    }

    /// Returns the collection of a call that is not on single documents.
    fn collection(self) -> Option<&'a str> {
        match self {
            Self::Refresh(name) | Self::Scan(name, _) | Self::Identify(name) => Some(name),
            Self::OpenCollection(spec) => Some(&spec.name),
            Self::Other(name) => name,
            _ => None,
        }
    }
}

/// A part of a script for one call.
///
/// The part is a wait, an error, or both.
#[derive(Default)]
pub struct Step {
    wait: Option<BoxFuture<'static, ()>>,
    error: Option<StoreError>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("error", &self.error).finish_non_exhaustive()
    }
}

impl Step {
    /// Lets the call go on.
    #[must_use]
    pub fn pass() -> Self {
        Self::default()
    }

    /// Delays the call. A zero span passes, and lets no other task run.
    #[must_use]
    pub fn delay(span: Duration) -> Self {
        match span.is_zero() {
            true => Self::pass(),
            false => Self::wait(tokio::time::sleep(span)),
        }
    }

    /// Delays the call until this future ends.
    #[must_use]
    pub fn wait(until: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { wait: Some(Box::pin(until)), error: None }
    }

    /// Ends the call after the wait.
    ///
    /// A read is unavailable with this error, the outcome of a write is unknown, and any other call
    /// returns the error.
    #[must_use]
    pub fn fail(mut self, error: StoreError) -> Self {
        self.error = Some(error);
        self
    }
}

type Hook = Arc<dyn Fn(Call<'_>) -> Step + Send + Sync>;
type Fates = Arc<dyn Fn(&Write) -> Fate + Send + Sync>;
type Time = Arc<dyn Fn() -> Option<Duration> + Send + Sync>;

/// The calls that fail in a closed collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Reads and writes of documents fail. Scans and administration continue.
    Documents,
    /// Every call on the collection fails, except for drops and aliases.
    Entirely,
}

/// Passes calls to another store, as the script of a test says.
///
/// A script has these parts, and each of them can be changed while calls run:
/// - Hooks [before](Self::before) and [after](Self::after) each call delay the call or fail it.
///   A hook can also count calls, and write to the store as another client.
/// - [`Self::play`] decides each write: its effect and its answer.
/// - [`Self::set_down`] and [`Self::close`] make the store or a collection unavailable.
/// - [`Self::tell_time`] sets the server time.
///
/// Without a script every call passes. A script may break the contract of [`txn_store`]. Random
/// faults within the contract come from [`FaultStore`](crate::FaultStore).
pub struct Scripted {
    inner: Arc<dyn Store>,
    before: Mutex<Vec<Hook>>,
    after: Mutex<Vec<Hook>>,
    fates: Mutex<Fates>,
    down: AtomicBool,
    closed: Mutex<BTreeMap<String, Closed>>,
    time: Mutex<Option<Time>>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Scripted {
    /// Wraps a store, without a script.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            before: Mutex::default(),
            after: Mutex::default(),
            fates: Mutex::new(Arc::new(|_: &Write| Fate::Pass)),
            down: AtomicBool::new(false),
            closed: Mutex::default(),
            time: Mutex::default(),
        }
    }

    /// Wraps a store with slow calls for documents.
    ///
    /// Each read and each write of documents takes `span`.
    #[must_use]
    pub fn slow(inner: Arc<dyn Store>, span: Duration) -> Self {
        let store = Self::new(inner);
        store.before(move |call| match call.has(|_| true) {
            true => Step::delay(span),
            false => Step::pass(),
        });
        store
    }

    /// Adds a hook that runs before each call, after the earlier hooks.
    pub fn before(&self, hook: impl Fn(Call<'_>) -> Step + Send + Sync + 'static) {
        self.before.lock().push(Arc::new(hook));
    }

    /// Adds a hook between a call's execution and its answer.
    pub fn after(&self, hook: impl Fn(Call<'_>) -> Step + Send + Sync + 'static) {
        self.after.lock().push(Arc::new(hook));
    }

    /// Replaces the script of single writes.
    ///
    /// The script sees the writes of a call in their order, before the first write is carried out.
    pub fn play(&self, script: impl Fn(&Write) -> Fate + Send + Sync + 'static) {
        *self.fates.lock() = Arc::new(script);
    }

    /// Makes the store unavailable, or available again. While the store is down, writes are
    /// rejected for certain.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Closes a collection.
    pub fn close(&self, collection: &str, closed: Closed) {
        self.closed.lock().insert(collection.to_owned(), closed);
    }

    /// Opens a closed collection again.
    pub fn reopen(&self, collection: &str) {
        self.closed.lock().remove(collection);
    }

    /// Sets the answer to requests for the server time.
    pub fn tell_time(&self, time: impl Fn() -> Option<Duration> + Send + Sync + 'static) {
        *self.time.lock() = Some(Arc::new(time));
    }

    async fn run(&self, hooks: &Mutex<Vec<Hook>>, call: Call<'_>) -> Result<(), StoreError> {
        let hooks = hooks.lock().clone();
        for hook in hooks {
            let Step { wait, error } = hook(call);
            if let Some(wait) = wait {
                wait.await;
            }
            error.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Runs a call that is not on single documents.
    async fn ask<V>(
        &self,
        call: Call<'_>,
        answer: impl Future<Output = Result<V, StoreError>>,
    ) -> Result<V, StoreError> {
        self.run(&self.before, call).await?;
        self.check_up()?;
        let closed = call.collection().and_then(|name| self.closed.lock().get(name).copied());
        if closed == Some(Closed::Entirely) {
            return Err(unavailable(CLOSED));
        }
        let answer = answer.await;
        self.run(&self.after, call).await?;
        answer
    }

    async fn read(
        &self,
        call: Call<'_>,
        keys: &[Key],
        read: impl Future<Output = Vec<Read>>,
    ) -> Vec<Read> {
        let fail = |error: &StoreError| vec![Read::Unavailable(error.clone()); keys.len()];
        if let Err(error) = self.run(&self.before, call).await.and_then(|()| self.check_up()) {
            return fail(&error);
        }
        let mut reads = read.await;
        for (key, read) in keys.iter().zip(&mut reads) {
            if self.is_closed(key) {
                *read = Read::Unavailable(unavailable(CLOSED));
            }
        }
        match self.run(&self.after, call).await {
            Ok(()) => reads,
            Err(error) => fail(&error),
        }
    }

    fn check_up(&self) -> Result<(), StoreError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(unavailable("down")),
            false => Ok(()),
        }
    }

    fn is_closed(&self, key: &Key) -> bool {
        self.closed.lock().contains_key(&*key.collection)
    }

    /// Returns the fates of the writes.
    ///
    /// The fates end at the first write without an answer.
    fn fates(&self, writes: &[Write]) -> Vec<Fate> {
        let mut fates = Vec::with_capacity(writes.len());
        for write in writes {
            if self.check_up().is_err() {
                fates.push(Fate::RefuseWith(Outcome::Rejected("down".to_owned())));
                continue;
            }
            let script = self.fates.lock().clone();
            let fate = match script(write) {
                Fate::RefuseWith(outcome) => Fate::RefuseWith(outcome),
                _ if self.is_closed(&write.key) => {
                    Fate::RefuseWith(Outcome::RejectedInDoubt(CLOSED.to_owned()))
                }
                fate => fate,
            };
            fates.push(fate);
            if matches!(fates.last(), Some(Fate::Hang | Fate::Panic)) {
                break;
            }
        }
        fates
    }

    async fn carry_out(&self, writes: &[Write]) -> Vec<Outcome> {
        let fates = self.fates(writes);
        let is_sent = |fate: &Fate| !matches!(fate, Fate::RefuseWith(_));
        let sent = writes.iter().zip(&fates).filter(|(_, fate)| is_sent(fate));
        let sent: Vec<Write> = sent.map(|(write, _)| write.clone()).collect();
        let answers = match sent.is_empty() && !writes.is_empty() {
            true => Vec::new(),
            false => self.inner.write_many(&sent).await,
        };
        match fates.last() {
            Some(Fate::Hang) => std::future::pending().await,
            Some(Fate::Panic) => panic!("the store panics"),
            _ => {}
        }
        let mut answers = answers.into_iter();
        let mut answered = || {
            answers.next().unwrap_or_else(|| Outcome::Unknown("the store gave no outcome".into()))
        };
        let outcome = |fate| match fate {
            Fate::RefuseWith(outcome) => outcome,
            Fate::AnswerWith(outcome) => {
                answered();
                outcome
            }
            Fate::Pass | Fate::Hang | Fate::Panic => answered(),
        };
        fates.into_iter().map(outcome).collect()
    }
}

fn unavailable(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, message)
}

#[async_trait]
impl Layer for Scripted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.read(Call::GetMany(keys), keys, self.inner.get_many(keys)).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.read(Call::ReadPrimary(keys), keys, self.inner.read_primary(keys)).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let call = Call::WriteMany(writes);
        let unknown = |error: StoreError| vec![Outcome::Unknown(error.message); writes.len()];
        if let Err(error) = self.run(&self.before, call).await {
            return unknown(error);
        }
        let outcomes = self.carry_out(writes).await;
        match self.run(&self.after, call).await {
            Ok(()) => outcomes,
            Err(error) => unknown(error),
        }
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.ask(Call::Refresh(collection), self.inner.refresh(collection)).await
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        let scan = self.inner.scan(collection, filter, size, from);
        self.ask(Call::Scan(collection, filter), scan).await
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        self.ask(Call::OpenCollection(spec), self.inner.open_collection(spec)).await
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        self.ask(Call::Identify(name), self.inner.identify(name)).await
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        self.ask(Call::Other(None), self.inner.drop_collection(name)).await
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        self.ask(Call::Other(None), self.inner.add_alias(alias, collection)).await
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        let block = self.inner.block_writes(collection, blocked);
        self.ask(Call::Other(Some(collection)), block).await
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        self.ask(Call::Other(None), self.inner.list_collections(prefix)).await
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        let release = self.inner.release_collection(collection);
        self.ask(Call::Other(Some(collection)), release).await
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        let time = self.time.lock().clone();
        let answer = async {
            match time {
                Some(time) => Ok(time()),
                None => self.inner.server_time().await,
            }
        };
        self.ask(Call::ServerTime, answer).await
    }
}

/// A point of a script at which one call waits.
///
/// The test releases the call.
#[derive(Debug, Default)]
pub struct Breakpoint {
    is_set: AtomicBool,
    reached: Notify,
    released: Notify,
}

impl Breakpoint {
    /// Lets the next call wait.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
    }

    /// Waits for [`Self::release`], once after [`Self::set`]. Returns whether the caller waited.
    pub async fn pass(&self) -> bool {
        if !self.is_set.swap(false, Ordering::SeqCst) {
            return false;
        }
        self.reached.notify_one();
        self.released.notified().await;
        true
    }

    /// Returns the step of a call that waits here.
    #[must_use]
    pub fn step(self: &Arc<Self>) -> Step {
        let point = self.clone();
        Step::wait(async move {
            point.pass().await;
        })
    }

    /// Returns once a call waits.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets the waiting call go on.
    pub fn release(&self) {
        self.released.notify_one();
    }
}

#[cfg(test)]
mod tests;
