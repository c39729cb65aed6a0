//! Taking the engine out again: releasing a collection, removing a domain.

use crate::api::domain::Domain;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::{Deadline, WaitReason};
use crate::engine::lost::Claim;
use crate::engine::pages::PAGE;
use crate::engine::survey::open_records;
use crate::engine::{Engine, view};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{CollectionSpec, Filter, Key, Role, Write, WriteOp};
use txn_protocol::machines::settle::Answer;

impl Domain {
    /// Releases a collection: takes off its claim, its entry in the domain document, and what the store added to it.
    /// Its documents stay as they are, with the reserved fields of their last commit; another domain may claim it, and
    /// plain clients may have it for themselves. Every process of the domain has to have stopped using it before.
    ///
    /// Idempotent; a collection that was deleted by other means is released, too.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a document in it is locked or an open transaction names it: call
    /// [`Domain::janitor_pass`], and try again; [`ErrorKind::Misconfigured`] if it does not belong to this domain;
    /// else as the store says. Nothing is released then.
    ///
    /// # Cancel safety
    /// Dropped half-way, it can be called again.
    pub async fn release_collection(&self, name: &str) -> Result<()> {
        let engine = &self.engine;
        let deadline = engine.deadline(engine.config.deadline);
        engine.release(name, &deadline).await.map_err(AttemptError::into_error)
    }

    /// Removes the domain: drops its transaction table, releases its collections, and deletes its document. The
    /// collections and their documents stay. All other processes of the domain have to be stopped before.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a lock or an open transaction is left, or somebody is still at it;
    /// [`ErrorKind::Damaged`] if a person must look first; [`ErrorKind::Unavailable`] if a collection cannot be
    /// looked at; else as the store says. It can be called again, after [`Domain::open`].
    ///
    /// # Cancel safety
    /// Dropped half-way, it can be called again, after [`Domain::open`].
    pub async fn remove(self) -> Result<()> {
        let engine = self.engine.clone();
        self.shutdown(engine.config.deadline).await;
        let report = self.janitor_pass().await?;
        if let Some((document, what)) = report.damaged.first() {
            return Err(Error::damaged(what.as_str()).at(document));
        }
        if let Some((name, why)) = report.unreachable.first() {
            return Err(Error::unavailable(format!("cannot look at {name:?}: {why}")));
        }
        if !report.is_clean() {
            let (locks, open) = (report.locked.len(), report.open.len());
            let message = format!(
                "{locks} documents are locked and {open} transactions are open: stop all processes of the domain"
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let deadline = engine.deadline(engine.config.deadline);
        engine.remove(&deadline).await.map_err(AttemptError::into_error)
    }
}

impl Engine {
    async fn release(&self, name: &str, deadline: &Deadline) -> Result<(), AttemptError> {
        let (document, ..) = self.domain_document(deadline).await?;
        let role = Role::Data { owner: None };
        let spec = CollectionSpec { name: name.to_owned(), role, create: false, mappings: None };
        let (name, uid) =
            match self.retry_unavailable(deadline, || self.store.open_collection(&spec)).await {
                Ok(info) => (info.name.to_string(), info.uid.to_string()),
                Err(AttemptError::Fail(error)) if error.is_not_found() => {
                    match document.collections.get(name) {
                        Some(uid) => (name.to_owned(), uid.clone()),
                        None => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error),
            };
        let key = Claim::key(&uid);
        if let Some(owner) = self.claimed_by(&key, deadline).await?
            && owner != **self.table.domain()
        {
            let message = format!("the collection {name:?} belongs to the domain {owner:?}");
            return Err(Error::new(ErrorKind::Misconfigured, message).into());
        }
        self.check_unlocked(&name, deadline).await?;
        for partition in document.partitions.values() {
            self.check_unnamed(&name, partition, deadline).await?;
        }
        match self.retry_unavailable(deadline, || self.store.release_collection(&name)).await {
            Err(AttemptError::Fail(error)) if error.is_not_found() => {}
            released => released?,
        }
        self.change_domain(deadline, |document| document.collections.remove(&name).is_some())
            .await?;
        self.collections.lock().remove(&*name);
        // The claim goes last: as long as it stands nobody else has the collection.
        self.delete(&key, deadline).await
    }

    async fn check_unlocked(&self, name: &str, deadline: &Deadline) -> Result<(), AttemptError> {
        match self.retry_unavailable(deadline, || self.store.refresh(name)).await {
            Err(AttemptError::Fail(error)) if error.is_not_found() => return Ok(()),
            refreshed => refreshed?,
        }
        let locked = Filter::Exists(crate::fields::TRANSACTION_TID);
        let mut pages = self.pages(name, locked, PAGE);
        while let Some(documents) = self.next_page(&mut pages, deadline).await? {
            for (key, version, source) in documents {
                if let Some(holder) = view(&key, version, &source)?.holder() {
                    let message =
                        "it is locked: call janitor_pass, and release the collection then";
                    return Err(in_use(message).at(&key).in_transaction(holder).into());
                }
            }
        }
        Ok(())
    }

    async fn check_unnamed(
        &self,
        name: &str,
        partition: &str,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        self.retry_unavailable(deadline, || self.store.refresh(partition)).await?;
        let mut pages = self.pages(partition, open_records(), PAGE);
        while let Some(documents) = self.next_page(&mut pages, deadline).await? {
            for (key, _, source) in documents {
                let record = crate::engine::format::read_record(&key, &source)?;
                if record.participants.iter().any(|participant| *participant.collection == *name) {
                    let message = "an open transaction names the collection: call janitor_pass, and release it then";
                    return Err(in_use(message).in_transaction(record.tid).into());
                }
            }
        }
        Ok(())
    }

    async fn remove(&self, deadline: &Deadline) -> Result<(), AttemptError> {
        let (document, ..) = self.domain_document(deadline).await?;
        // As days are dropped: once its partition is gone, nobody commits any more.
        for (day, name) in &document.partitions {
            if !self.drop_partition(*day, name, deadline).await? {
                let message = format!(
                    "the partition of {day} is still in use, or was blocked a while ago: stop all processes of the \
                     domain, and try again in some minutes"
                );
                return Err(in_use(message).into());
            }
        }
        for name in document.collections.keys() {
            self.release(name, deadline).await?;
        }
        self.delete(&self.table.janitor_key(), deadline).await?;
        self.delete(&self.table.domain_key(), deadline).await
    }

    /// Deletes a document of the registry, until that is acknowledged or it is not there.
    async fn delete(&self, key: &Key, deadline: &Deadline) -> Result<(), AttemptError> {
        let mut backoff = self.backoff();
        while let Some((version, _)) = self.read_registry(key, deadline).await? {
            let delete = Write::new(key.clone(), WriteOp::Delete(version));
            match Answer::from(self.write_one(delete).await) {
                Answer::Proof(_) => return Ok(()),
                Answer::Refused(outcome) => {
                    return Err(Error::from_refused(&outcome, key, "delete it").into());
                }
                Answer::Later(why) | Answer::Doubt(why) => {
                    self.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
                }
            }
        }
        Ok(())
    }
}

fn in_use(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Conflict, message)
}
