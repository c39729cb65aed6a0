//! Release of a collection, and removal of a domain.

use crate::engine::admin::DomainAdmin;
use crate::engine::admin::collections::Claim;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::heads::history_entry;
use crate::engine::store::pages::PAGE;
use crate::engine::store::store_access::view;
use crate::engine::table::format::read_record;
use crate::engine::table::retention::open_records;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use txn_protocol::board::MOST_SLOTS;
use txn_protocol::machines::settle::Answer;
use txn_store::{CollectionSpec, Filter, Key, Role, Write, WriteOp};

impl DomainAdmin {
    /// See [`Admin::release_collection`](crate::Admin::release_collection).
    pub(crate) async fn release(
        &self,
        name: &str,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let (document, ..) = self.table.domain_document(deadline).await?;
        let role = Role::Data { owner: None };
        let spec = CollectionSpec { name: name.to_owned(), role, create: false, mappings: None };
        let (name, uid) = match self
            .store
            .retry_unavailable(deadline, || self.store.documents().open_collection(&spec))
            .await
        {
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
        if let Some(owner) = self.collections.claimed_by(&key, deadline).await?
            && owner != **self.table.domain()
        {
            let message = format!("the collection {name:?} belongs to the domain {owner:?}");
            return Err(Error::new(ErrorKind::Misconfigured, message).into());
        }
        self.check_unlocked(&name, deadline).await?;
        for partition in document.partitions.values() {
            self.check_unnamed(&name, partition, deadline).await?;
        }
        match self
            .store
            .retry_unavailable(deadline, || self.store.documents().release_collection(&name))
            .await
        {
            Err(AttemptError::Fail(error)) if error.is_not_found() => {}
            released => released?,
        }
        self.table
            .change_domain(deadline, |document| document.collections.remove(&name).is_some())
            .await?;
        self.delete(&history_entry(&uid), deadline).await?;
        self.histories.forget(&name);
        // The claim goes last: until then no other domain can open the collection.
        self.delete(&key, deadline).await
    }

    async fn check_unlocked(&self, name: &str, deadline: &Deadline) -> Result<(), AttemptError> {
        match self.store.refresh(name, deadline).await {
            Err(AttemptError::Fail(error)) if error.is_not_found() => return Ok(()),
            refreshed => refreshed?,
        }
        let locked = Filter::Exists(txn_store::fields::TRANSACTION_TID);
        let mut pages = self.store.pages(name, locked, PAGE);
        while let Some(documents) = self.store.next_page(&mut pages, deadline).await? {
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
        self.store.refresh(partition, deadline).await?;
        let mut pages = self.store.pages(partition, open_records(), PAGE);
        while let Some(documents) = self.store.next_page(&mut pages, deadline).await? {
            for (key, _, source) in documents {
                let record = read_record(&key, &source)?;
                if record.participants.iter().any(|participant| *participant.collection == *name) {
                    let message = "an open transaction names the collection: call janitor_pass, and release it then";
                    return Err(in_use(message).in_transaction(record.tid).into());
                }
            }
        }
        Ok(())
    }

    /// Drops the transaction table, releases the collections, and deletes the domain document.
    ///
    /// The domain document goes last.
    pub(crate) async fn remove(&self, deadline: &Deadline) -> Result<(), AttemptError> {
        let (document, ..) = self.table.domain_document(deadline).await?;
        // As for old days: after the drop of its partition no transaction of a day commits.
        for (day, name) in &document.partitions {
            if !self.table.drop_partition(*day, name, deadline).await? {
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
        for number in 0..MOST_SLOTS {
            self.delete(&self.table.slot_key(number), deadline).await?;
        }
        for key in self.processes.keys(deadline).await? {
            self.delete(&key, deadline).await?;
        }
        self.delete(&self.table.domain_key(), deadline).await
    }

    /// Deletes a document of the registry.
    ///
    /// Returns once the deletion is acknowledged, or the document does not exist.
    async fn delete(&self, key: &Key, deadline: &Deadline) -> Result<(), AttemptError> {
        let mut backoff = self.context.backoff();
        while let Some((version, _)) = self.table.read_registry(key, deadline).await? {
            let delete = Write::new(key.clone(), WriteOp::Delete(version));
            match Answer::from(self.store.write_one(delete).await) {
                Answer::Proof(_) => return Ok(()),
                Answer::Refused(outcome) => {
                    return Err(Error::from_refused(&outcome, key, "delete it").into());
                }
                Answer::Later(why) | Answer::Doubt(why) => {
                    self.context.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
                }
            }
        }
        Ok(())
    }
}

fn in_use(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Conflict, message)
}
