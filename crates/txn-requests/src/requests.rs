//! Requests of a domain: what a client calls.

use std::sync::Arc;
use std::time::Duration;

use txn_core::{Acknowledge, Domain, ErrorKind, Options};
use txn_lock::backoff::Backoff;
use txn_lock::instance::wall_ms;
use txn_lock::stored::Stored;

use crate::apply::Stop;
use crate::companion::Companion;
use crate::config::RequestsConfig;
use crate::error::{RequestError, Result};
use crate::inner::{Halt, Inner, LOOKS, millis};
use crate::model::{Entry, State, Status};
use crate::request::Request;
use crate::selection::Selection;

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Requests.
    pub requests: usize,
    /// Of the outbox.
    pub outbox: txn_outbox::Purged,
}

/// Requests of one domain; cheap to clone. A request is a document of the collection `<domain>-requests` under the id that
/// its client gave it.
#[derive(Clone, Debug)]
pub struct Requests {
    pub(crate) inner: Arc<Inner>,
}

impl Requests {
    /// Opens the requests of a domain. Nothing is processed before [`Requests::start`].
    ///
    /// # Errors
    /// [`RequestError::InvalidConfig`], or the engine's.
    pub async fn open(domain: &Domain, config: RequestsConfig) -> Result<Self> {
        Ok(Self { inner: Arc::new(Inner::open(domain, config, None).await?) })
    }

    /// As [`Requests::open`], with something of the application in the transaction of each request that is carried out
    /// here. Whoever carries out requests of this domain has to have the same.
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

    /// Stores a request under the client's id, and returns once that is durable; it is processed later, by whichever
    /// process. The same request under the same id is the same one, whatever happened in between: a submission that
    /// was left without an answer may simply be sent again.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] and [`RequestError::InvalidId`] before anything is written;
    /// [`RequestError::IdReused`] if another request has the id; [`RequestError::Busy`] if too many are open; the
    /// engine's, also for a collection that does not exist.
    ///
    /// # Cancel safety
    /// Dropped, it is stored or not: send it again.
    pub async fn submit(&self, request: &Request, id: &str) -> Result<Status> {
        let inner = &self.inner;
        inner.check(request, id).await?;
        if let Some(found) = inner.find(id).await? {
            return inner.same(found, request);
        }
        inner.admit().await?;
        let status = inner.insert(request, id).await?;
        inner.submitted(&status);
        Ok(status)
    }

    /// Carries a request out at once, in one transaction, and stores it as committed under the client's id. The same
    /// request under the same id has one effect: one that was submitted before is not begun a second time, but
    /// brought to its end here.
    ///
    /// # Errors
    /// As [`Requests::submit`]; [`RequestError::Refused`] if an operation is refused: then nothing is stored, and the
    /// id is free. A request that was submitted before and is refused now is told by its [`Status`].
    ///
    /// # Cancel safety
    /// Dropped, it is carried out or not, whole in either case: execute it again.
    pub async fn execute(&self, request: &Request, id: &str) -> Result<Status> {
        let inner = &self.inner;
        let handles = inner.check(request, id).await?;
        let mut looks = 0;
        let options = Options::default().with_acknowledge(Acknowledge::Applied);
        // What reverses it looks for its version.
        let options = options.with_by_itself(true);
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
                // Somebody wrote it at the same moment: it is looked at now.
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

    /// What is known of a request.
    ///
    /// # Errors
    /// [`RequestError::NotFound`], [`RequestError::NewerFormat`], or the engine's.
    pub async fn status(&self, id: &str) -> Result<Status> {
        let found = self.inner.find(id).await?;
        found.map(Entry::status).ok_or_else(|| RequestError::NotFound(id.to_owned()))
    }

    /// Waits until a request is decided (committed, finished, rolled back, or set aside), at most for `deadline`.
    ///
    /// # Errors
    /// [`RequestError::Timeout`], which says where it stands; otherwise as [`Requests::status`].
    pub async fn wait(&self, id: &str, deadline: Duration) -> Result<Status> {
        let inner = &self.inner;
        let until = inner.now() + deadline;
        let mut backoff = Backoff::new(Duration::from_millis(5), inner.config.longest_pause);
        let watcher = inner.watchers.watch(id);
        loop {
            // Before the look: what changes after it is heard.
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
            let pause = backoff.next(&*inner.domain.config().entropy).min(left);
            tokio::select! {
                () = changed => {}
                () = inner.clock().sleep(pause) => {}
            }
        }
    }

    /// Requests by application and state, the oldest first. Several looks are no snapshot. Costs a scan of all requests
    /// in those states.
    ///
    /// # Errors
    /// [`RequestError::Store`], [`RequestError::NewerFormat`], or the engine's.
    pub async fn list(&self, selection: &Selection) -> Result<Vec<Status>> {
        match self.inner.select_all(selection).await? {
            (found, None) => Ok(found.into_iter().map(Entry::status).collect()),
            (_, Some(newer)) => Err(newer),
        }
    }

    /// Deletes requests that are finished or rolled back and have stood so for `age`, by the wall clock.
    ///
    /// An id counts until its request is purged. The same request under the same id **has a second effect afterwards**, so the age is
    /// the time within which a client may send a request again: its retries, a queue in front of it, a backup that is replayed.
    /// With [`Duration::ZERO`] no id counts beyond the end of its request. With an outbox, what that keeps of keys which were
    /// not used for so long goes, too, those of updates that depend on a write among them, and results of HTTP requests.
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

    /// Ends the processors and tasks of this handle, and waits for them at most for `deadline`. Returns whether all of
    /// it was done: what was not is taken over by others. Shut requests down before their domain.
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

/// What became of a request that is executed.
enum Executed {
    Now(Box<Entry>),
    Found(Box<Entry>),
}
