//! Operator calls: cancel, reverse and release.

use txn_core::CommitVersion;
use txn_lock::instance::wall_ms;
use txn_lock::stored::Stored;

use crate::contents::request::Request;
use crate::error::{RequestError, Result};
use crate::model::{Entry, Reason, State, Status};
use crate::processing::apply::Undo;
use crate::requests::Requests;

impl Requests {
    /// Rolls back a request that is not committed. The status keeps `why`.
    ///
    /// A created request is rolled back at once. A pending request becomes `terminating`: then
    /// either the rollback or the processor commits first and wins.
    ///
    /// # Errors
    /// [`RequestError::WrongState`] if the request is committed: use [`Requests::reverse`].
    /// [`RequestError::NotFound`], or an error of the engine.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the request may be cancelled or not. The recovery ends a
    /// started rollback.
    pub async fn cancel(&self, id: &str, why: &str) -> Result<Status> {
        let state = self
            .inner
            .change(id, |entry, now| {
                let next = match entry.state {
                    State::Created | State::Quarantined => State::RolledBack,
                    State::Pending => State::Terminating,
                    // A repeated call returns the result of the first one.
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

    /// Submits a request that reverses a committed one, under its own id.
    ///
    /// The reversal adds amounts with the other sign, within the same bounds. All other documents
    /// return to their previous content, if they are still as the request left them. A request has
    /// at most one reversal; a reversal that was rolled back does not count. A repeated call
    /// returns the same reversal.
    ///
    /// # Errors
    /// [`RequestError::WrongState`] if the request is not committed;
    /// [`RequestError::AlreadyReversed`]; [`RequestError::IdReused`] if `reversal` names another
    /// request; [`RequestError::NotFound`], or an error of the engine. The [`Status`] of the
    /// reversal shows whether it succeeded.
    pub async fn reverse(&self, id: &str, reversal: &str) -> Result<Status> {
        self.inner.check_id(reversal)?;
        self.reverse_by(id, reversal, None).await
    }

    /// As [`Requests::reverse`], with operations of the application.
    ///
    /// A ledger that never deletes, for example, needs its own operations. A request still has at
    /// most one reversal.
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
                // The version of the document is that of the commit, because no process has written
                // it since.
                None => tx.version(&inner.entries, id).await?,
            };
            let request = match given {
                Some(given) => given.clone(),
                None => reversal_of(&entry, version)?,
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

    /// Releases a quarantined request for another try.
    ///
    /// # Errors
    /// [`RequestError::WrongState`] if the request is not quarantined; [`RequestError::NotFound`],
    /// or an error of the engine.
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

/// The request that undoes a committed request.
fn reversal_of(entry: &Entry, version: Option<CommitVersion>) -> Result<Request> {
    let steps = entry.undo.as_deref().unwrap_or_default();
    let operations = version.map(|version| Undo::operations(steps, version)).unwrap_or_default();
    if operations.is_empty() {
        return Err(RequestError::Invalid(format!("{:?} changed nothing", entry.id)));
    }
    let mut request = Request::new(operations);
    request.application.clone_from(&entry.application);
    Ok(request)
}
