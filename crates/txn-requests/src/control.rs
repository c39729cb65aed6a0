//! What people do to requests: cancel, reverse, release, roll back.

use txn_core::CommitVersion;
use txn_lock::instance::wall_ms;
use txn_lock::stored::Stored;

use crate::apply::Undo;
use crate::error::{RequestError, Result};
use crate::model::{Entry, Reason, State, Status};
use crate::request::Request;
use crate::requests::Requests;

impl Requests {
    /// Rolls a request back that is not committed: one that nobody has begun with at once; one that a processor is at
    /// by way of `terminating`, and whichever of the two commits first wins. `why` is kept with it.
    ///
    /// # Errors
    /// [`RequestError::WrongState`] if it is committed: then [`Requests::reverse`] is what remains.
    /// [`RequestError::NotFound`], or the engine's.
    ///
    /// # Cancel safety
    /// Dropped, it may be cancelled or not; what was begun the recovery ends.
    pub async fn cancel(&self, id: &str, why: &str) -> Result<Status> {
        let state = self
            .inner
            .change(id, |entry, now| {
                let next = match entry.state {
                    State::Created | State::Quarantined => State::RolledBack,
                    State::Pending => State::Terminating,
                    // A second call finds what the first one did.
                    State::Terminating | State::RolledBack => return Ok((false, entry.state)),
                    state => {
                        let id = id.to_owned();
                        return Err(RequestError::WrongState { id, state, wanted: "cancelled" });
                    }
                };
                entry.reason = Some(Reason::Cancelled(why.to_owned()));
                entry.enter(next, now);
                Ok((true, next))
            })
            .await?;
        if state == State::Terminating {
            self.inner.terminate(id).await?;
        }
        self.status(id).await
    }

    /// Submits, under an id of its own, the request that takes a committed one back: sums with the other sign, within
    /// the same bounds; what was written, inserted, patched or deleted as it was before, provided that it is still as
    /// the request left it. A request is reversed once; a reversal that was rolled back does not count. The same
    /// reversal again finds itself.
    ///
    /// # Errors
    /// [`RequestError::WrongState`] if it is not committed; [`RequestError::AlreadyReversed`];
    /// [`RequestError::IdReused`] if `reversal` names another request; [`RequestError::NotFound`], or the engine's.
    /// Whether the reversal can be carried out shows in its own [`Status`].
    pub async fn reverse(&self, id: &str, reversal: &str) -> Result<Status> {
        self.inner.check_id(reversal)?;
        self.reverse_by(id, reversal, None).await
    }

    /// As [`Requests::reverse`], by operations that the application gives: those of a ledger, for instance, in which
    /// nothing is ever deleted. That a request is reversed once is still kept by us.
    ///
    /// # Errors
    /// As [`Requests::reverse`] and [`Requests::submit`].
    pub async fn reverse_with(
        &self,
        id: &str,
        reversal: &str,
        request: &Request,
    ) -> Result<Status> {
        self.inner.check(request, reversal).await?;
        self.reverse_by(id, reversal, Some(request)).await
    }

    async fn reverse_by(
        &self,
        id: &str,
        reversal: &str,
        given: Option<&Request>,
    ) -> Result<Status> {
        let inner = &self.inner;
        let reversed = inner.domain.transact(async |tx| {
            let found = inner.read(tx, id).await?;
            let mut entry = found.ok_or_else(|| RequestError::NotFound(id.to_owned()))?;
            if let Some(found) = inner.read(tx, reversal).await? {
                let same = given.is_none_or(|given| found.request == *given);
                return match same && found.reverses.as_deref() == Some(id) {
                    true => Ok((found, false)),
                    false => Err(RequestError::IdReused(reversal.to_owned())),
                };
            }
            if !entry.state.is_committed() {
                let (id, state) = (id.to_owned(), entry.state);
                return Err(RequestError::WrongState { id, state, wanted: "reversed" });
            }
            if let Some(by) = &entry.reversed_by
                && inner.read(tx, by).await?.is_some_and(|by| by.state != State::RolledBack)
            {
                let (id, by) = (id.to_owned(), by.clone());
                return Err(RequestError::AlreadyReversed { id, by });
            }
            let version: Option<CommitVersion> = match entry.commit_version {
                Some(version) => Some(version),
                // Nobody wrote the request since it was committed.
                None => tx.version(&inner.entries, id).await?,
            };
            let request = match given {
                Some(given) => given.clone(),
                None => {
                    let steps = entry.undo.as_deref().unwrap_or_default();
                    let operations = version.map(|version| Undo::operations(steps, version));
                    let operations = operations.unwrap_or_default();
                    if operations.is_empty() {
                        return Err(RequestError::Invalid(format!("{id:?} changed nothing")));
                    }
                    let mut request = Request::new(operations);
                    request.application.clone_from(&entry.application);
                    request
                }
            };
            let now = wall_ms(&inner.domain);
            let mut new = Entry::new(reversal, request, now);
            new.reverses = Some(id.to_owned());
            entry.commit_version = version;
            entry.reversed_by = Some(reversal.to_owned());
            tx.insert(&inner.entries, reversal, &Stored::Known(new.clone()))?;
            tx.put(&inner.entries, id, &Stored::Known(entry))?;
            Ok::<_, RequestError>((new, true))
        });
        let (entry, new) = reversed.await?;
        let status = entry.status();
        if new {
            inner.submitted(&status);
        }
        Ok(status)
    }

    /// Lets a request that was set aside be tried again.
    ///
    /// # Errors
    /// [`RequestError::WrongState`] if it is not set aside; [`RequestError::NotFound`], or the engine's.
    pub async fn release(&self, id: &str) -> Result<Status> {
        self.inner
            .change(id, |entry, now| {
                if entry.state != State::Quarantined {
                    let (id, state) = (id.to_owned(), entry.state);
                    return Err(RequestError::WrongState { id, state, wanted: "released" });
                }
                (entry.failures, entry.deaths) = (0, 0);
                entry.enter(State::Created, now);
                Ok((true, ()))
            })
            .await?;
        let status = self.status(id).await?;
        self.inner.submitted(&status);
        Ok(status)
    }
}
