//! The requests of a domain: the API for clients.

use std::sync::Arc;
use std::time::Duration;

use txn_core::{Domain, ErrorKind, LockMode, Options, WaitFor};
use txn_lock::backoff::Backoff;
use txn_lock::instance::wall_ms;
use txn_lock::stored::Stored;

use crate::config::RequestsConfig;
use crate::contents::request::Request;
use crate::contents::selection::Selection;
use crate::error::{RequestError, Result};
use crate::model::{Entry, State, Status};
use crate::processing::apply::Stop;
use crate::processing::companion::Companion;
use crate::processing::inner::{Halt, Inner, LOOKS, millis};

/// The counts of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// The number of deleted requests.
    pub requests: usize,
    /// The counts of the outbox.
    pub outbox: txn_outbox::Purged,
}

/// The requests of one domain. Cheap to clone.
///
/// A request is a document of the collection `<domain>-requests`, under the id that its client
/// chose.
#[derive(Clone, Debug)]
pub struct Requests {
    pub(crate) inner: Arc<Inner>,
}

impl Requests {
    /// Opens the requests of a domain. Processors start with [`Requests::start`].
    ///
    /// # Errors
    /// [`RequestError::InvalidConfig`], or an error of the engine.
    pub async fn open(domain: &Domain, config: RequestsConfig) -> Result<Self> {
        Ok(Self { inner: Arc::new(Inner::open(domain, config, None).await?) })
    }

    /// As [`Requests::open`], with a hook in the transaction of each request.
    ///
    /// All processes that execute requests of this domain must have the same hook.
    ///
    /// # Errors
    /// As [`Requests::open`].
    pub async fn open_with(
        domain: &Domain,
        config: RequestsConfig,
        companion: Arc<dyn Companion>,
    ) -> Result<Self> {
        Ok(Self { inner: Arc::new(Inner::open(domain, config, Some(companion)).await?) })
    }

    /// Stores a request under the client's id. A processor executes it later.
    ///
    /// The request is durable when the call returns. A repeated call with the same request and id
    /// is the same submission, so a client may repeat a call without an answer.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] and [`RequestError::InvalidId`] before any write;
    /// [`RequestError::IdReused`] if another request has the id; [`RequestError::Busy`] if too many
    /// requests are open; [`RequestError::TooManyScheduled`] if too many requests wait for their
    /// moment. Errors of the engine, also for a missing collection.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the request is stored or not. Repeat the call.
    pub async fn submit(&self, request: &Request, id: &str) -> Result<Status> {
        let inner = &self.inner;
        inner.check(request, id).await?;
        if let Some(found) = inner.find(id).await? {
            return inner.same(found, request);
        }
        match inner.is_early(request) {
            true => inner.admit_scheduled(request).await?,
            false => inner.admit().await?,
        }
        let status = inner.insert(request, id).await?;
        inner.submitted(&status);
        Ok(status)
    }

    /// Executes a request at once, in one transaction, under the client's id.
    ///
    /// A repeated call with the same request and id has one effect. A request that was submitted
    /// before is not started again: the call brings the submission to its end.
    ///
    /// # Errors
    /// As [`Requests::submit`], and [`RequestError::Invalid`] for a request that is not due.
    /// [`RequestError::Refused`] if an operation is refused: then nothing
    /// is stored, and the id is free. For an earlier submission the [`Status`] reports the refusal.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the request happens completely or not at all. Repeat the
    /// call.
    pub async fn execute(&self, request: &Request, id: &str) -> Result<Status> {
        let inner = &self.inner;
        let handles = inner.check(request, id).await?;
        if inner.is_early(request) {
            let why = "it is not due yet: submit it, and a processor executes it later";
            return Err(RequestError::Invalid(why.to_owned()));
        }
        let mut looks = 0;
        let options = Options::default().with_wait_for(WaitFor::Apply);
        // A reversal needs the commit version of this request alone.
        let options = options.with_lock_mode(LockMode::AtCommitUngrouped);
        let done = loop {
            let done = inner.domain.run(&options, async |tx| {
                if let Some(found) = inner.read(tx, id).await.map_err(Halt::Failed)? {
                    return Ok(Executed::Found(Box::new(found)));
                }
                let undo = inner.effects(tx, &handles, request).await?;
                let now = wall_ms(&inner.domain);
                let mut entry = Entry::new(id, request.clone(), now);
                entry.undo = Some(undo);
                entry.enter(State::Committed, now);
                tx.insert(&inner.entries, id, &Stored::Known(entry.clone()))?;
                Ok::<_, Halt>(Executed::Now(Box::new(entry)))
            });
            match done.await {
                // Another process wrote this id at the same moment: read it again.
                Err(Halt::Stop(Stop::Engine(error)))
                    if error.kind() == ErrorKind::Exists && looks < LOOKS =>
                {
                    looks += 1;
                }
                done => break done.map_err(Halt::into_error)?,
            }
        };
        match done.value {
            Executed::Now(entry) => {
                inner.finish_later(id, done.receipt.applied, done.receipt.commit_version);
                Ok(entry.status())
            }
            Executed::Found(found) => {
                let found = inner.same(*found, request)?;
                if found.state.is_settled() {
                    return Ok(found);
                }
                inner.process(id, None).await?;
                self.status(id).await
            }
        }
    }

    /// Returns the status of a request.
    ///
    /// # Errors
    /// [`RequestError::NotFound`], [`RequestError::NewerFormat`], or an error of the engine.
    pub async fn status(&self, id: &str) -> Result<Status> {
        let found = self.inner.find(id).await?;
        found.map(Entry::status).ok_or_else(|| RequestError::NotFound(id.to_owned()))
    }

    /// Waits until a request is decided, for at most `deadline`.
    ///
    /// A decided request is committed, finished, rolled back, or quarantined.
    ///
    /// # Errors
    /// [`RequestError::Timeout`] with the current state; otherwise as [`Requests::status`].
    pub async fn wait(&self, id: &str, deadline: Duration) -> Result<Status> {
        let inner = &self.inner;
        let until = inner.now() + deadline;
        let mut backoff = Backoff::new(Duration::from_millis(5), inner.config.longest_pause);
        let watcher = inner.watchers.watch(id);
        loop {
            // Registers before the read, so that no later change is missed.
            let changed = watcher.changed();
            let status = self.status(id).await?;
            if status.state.is_settled() {
                return Ok(status);
            }
            let left = until.saturating_sub(inner.now());
            if left.is_zero() {
                let (id, waited) = (id.to_owned(), deadline);
                return Err(RequestError::Timeout { id, waited, state: status.state });
            }
            let pause = backoff.next(inner.domain.config().entropy()).min(left);
            tokio::select! {
                () = changed => {}
                () = inner.clock().sleep(pause) => {}
            }
        }
    }

    /// Lists requests by application and state, oldest first.
    ///
    /// The call scans all requests in these states. Separate reads are no snapshot.
    ///
    /// # Errors
    /// [`RequestError::Store`], [`RequestError::NewerFormat`], or an error of the engine.
    pub async fn list(&self, selection: &Selection) -> Result<Vec<Status>> {
        match self.inner.select_all(selection).await? {
            (found, None) => Ok(found.into_iter().map(Entry::status).collect()),
            (_, Some(newer)) => Err(newer),
        }
    }

    /// Deletes requests that have been finished or rolled back for `age`.
    ///
    /// The wall clock decides. An id is valid until the purge of its request. The same request
    /// under the same id **has a second effect afterwards**. `age` must therefore exceed the time
    /// in which a client may repeat a request: its retries, a message queue, a replayed backup.
    /// With [`Duration::ZERO`] an id ends with its request.
    ///
    /// With an outbox, the call also purges the outbox's keys that were unused for `age`, and
    /// results of HTTP requests. Keys of dependent updates are among them.
    ///
    /// # Errors
    /// As [`Requests::list`], and [`Outbox::purge`](txn_outbox::Outbox::purge).
    pub async fn purge(&self, age: Duration) -> Result<Purged> {
        let inner = &self.inner;
        let before = wall_ms(&inner.domain).saturating_sub(millis(age));
        let is_over = |entry: &Entry| {
            matches!(entry.state, State::Finished | State::RolledBack)
                && entry.times.modified_ms <= before
        };
        let selection = Selection::default().with_states([State::Finished, State::RolledBack]);
        let mut purged = Purged::default();
        for found in inner.select(&selection).await?.into_iter().filter(|entry| is_over(entry)) {
            let deleted = inner.domain.transact(async |tx| {
                let over = inner.read(tx, &found.id).await?.is_some_and(|entry| is_over(&entry));
                if over {
                    tx.delete(&inner.entries, &found.id)?;
                }
                Ok::<_, RequestError>(over)
            });
            purged.requests += usize::from(deleted.await?);
        }
        if let Some(outbox) = &inner.config.outbox {
            purged.outbox = outbox.purge(age).await?;
        }
        Ok(purged)
    }

    /// Stops the processors and tasks of this handle. Waits for at most `deadline`.
    ///
    /// Returns whether all tasks have ended. Other processes take the remaining requests over. Shut
    /// requests down before their domain.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        let inner = &self.inner;
        inner.closing.cancel();
        inner.tasks.close();
        let drained = async {
            inner.tasks.wait().await;
            inner.instances.leave().await.is_ok()
        };
        tokio::select! {
            biased;
            clean = drained => clean,
            () = inner.clock().sleep(deadline) => false,
        }
    }
}

/// The result of an executed request.
enum Executed {
    Now(Box<Entry>),
    Found(Box<Entry>),
}
