//! Access to the store: read retries, and an answer per document.

use std::sync::Arc;

use crate::engine::attempt_error::AttemptError;
use crate::engine::context::Context;
use crate::engine::deadline::Deadline;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use txn_protocol::document::{Stored, View};
use txn_protocol::rule::Rule;
use txn_store::{Key, Limits, Outcome, Read, Store, StoreErrorKind, Version, Write};

/// The requests of the engine to the store.
pub(crate) struct StoreAccess {
    pub(in crate::engine::store) context: Arc<Context>,
    documents: Arc<dyn Store>,
    /// The same store with a request queue of its own, for records.
    records: Arc<dyn Store>,
}

impl StoreAccess {
    /// `records`: the same store with a request queue of its own. Commits, verdicts and heartbeats
    /// do not queue behind documents of a hanging shard.
    pub(crate) fn new(
        context: Arc<Context>,
        documents: Arc<dyn Store>,
        records: Arc<dyn Store>,
    ) -> Self {
        Self { context, documents, records }
    }

    /// The store for documents, as opposed to records.
    pub(crate) fn documents(&self) -> &Arc<dyn Store> {
        &self.documents
    }

    /// The store for records.
    pub(in crate::engine) fn records(&self) -> &dyn Store {
        &*self.records
    }

    pub(crate) fn limits(&self) -> Limits {
        self.documents.limits()
    }

    /// Makes every acknowledged write of a collection visible to scans.
    pub(crate) async fn refresh(
        &self,
        collection: &str,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        self.retry_unavailable(deadline, || self.documents.refresh(collection)).await
    }

    /// Runs an administrative operation, and retries while the store is unavailable.
    pub(crate) async fn retry_unavailable<T, F>(
        &self,
        deadline: &Deadline,
        mut operation: impl FnMut() -> F + Send,
    ) -> Result<T, AttemptError>
    where
        F: Future<Output = Result<T, txn_store::StoreError>> + Send,
    {
        let mut backoff = self.context.backoff();
        loop {
            match operation().await {
                Ok(value) => return Ok(value),
                Err(error) if error.kind == StoreErrorKind::Unavailable => {
                    self.context
                        .pause(deadline, &mut backoff, WaitReason::Store(error.message))
                        .await?;
                }
                Err(error) => return Err(Error::from(error).into()),
            }
        }
    }

    pub(crate) async fn write_one(&self, write: Write) -> Outcome {
        self.write_all(std::slice::from_ref(&write)).await.swap_remove(0)
    }

    /// Sends writes. Returns an outcome for each, even if answers are missing.
    pub(crate) async fn write_all(&self, writes: &[Write]) -> Vec<Outcome> {
        self.write_to(&*self.documents, writes).await
    }

    /// As [`Self::write_all`], through this store.
    pub(in crate::engine) async fn write_to(
        &self,
        store: &dyn Store,
        writes: &[Write],
    ) -> Vec<Outcome> {
        let mut outcomes = store.write_many(writes).await;
        outcomes.resize_with(writes.len(), || Outcome::Unknown("no answer".to_owned()));
        for outcome in &mut outcomes {
            if let Outcome::RejectedInDoubt(why) = outcome
                && !self.context.rules.decides(Rule::RefusalInDoubt)
            {
                *outcome = Outcome::Rejected(std::mem::take(why));
            }
        }
        outcomes
    }

    /// Reads documents until the store answers for all of them, in order.
    pub(crate) async fn read_documents(
        &self,
        keys: &[Key],
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<Vec<View>, AttemptError> {
        let mut backoff = self.context.backoff();
        let mut views: Vec<Option<View>> = vec![None; keys.len()];
        loop {
            let missing: Vec<usize> = (0..keys.len()).filter(|i| views[*i].is_none()).collect();
            if missing.is_empty() {
                return Ok(views.into_iter().flatten().collect());
            }
            let asked: Vec<Key> = missing.iter().map(|i| keys[*i].clone()).collect();
            let looks = self.look_at(&asked, from).await;
            let mut reason = None;
            for ((index, key), look) in missing.into_iter().zip(&asked).zip(looks) {
                match look {
                    Look::Seen(view) => views[index] = Some(view),
                    Look::Missing => return Err(missing_collection(key).into()),
                    Look::Later(why) => reason = Some(WaitReason::Store(why)),
                    Look::Broken(error) => return Err(error.into()),
                }
            }
            if let Some(reason) = reason {
                self.context.pause(deadline, &mut backoff, reason).await?;
            }
        }
    }

    /// Reads documents once, with an answer for each, in order.
    pub(crate) async fn look_at(&self, keys: &[Key], from: ReadPreference) -> Vec<Look> {
        if keys.is_empty() {
            return Vec::new();
        }
        let reads = match from {
            ReadPreference::AnyCopy => self.documents.get_many(keys).await,
            ReadPreference::Primary => self.documents.read_primary(keys).await,
        };
        let mut looks: Vec<Look> =
            keys.iter().zip(reads).map(|(key, read)| Look::of(key, read)).collect();
        let no_answer = || Look::Later("the store answered for too few documents".to_owned());
        looks.resize_with(keys.len(), no_answer);
        looks
    }
}

/// The copy that a read asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPreference {
    /// Any copy: fast, but perhaps stale.
    AnyCopy,
    Primary,
}

/// The result of one read of a document.
#[derive(Debug)]
pub(crate) enum Look {
    Seen(View),
    /// The collection is missing, as far as the asked copy knows.
    Missing,
    /// The store cannot answer now.
    Later(String),
    /// No later read gives another answer.
    Broken(Error),
}

impl Look {
    fn of(key: &Key, read: Read) -> Self {
        match read {
            Read::Found { version, source } => {
                view(key, version, &source).map_or_else(Self::Broken, Self::Seen)
            }
            Read::Absent => Self::Seen(View::Absent),
            Read::MissingCollection => Self::Missing,
            Read::Unavailable(error) if error.kind == StoreErrorKind::Unavailable => {
                Self::Later(error.message)
            }
            Read::Unavailable(error) => Self::Broken(Error::from(error).at(key)),
        }
    }
}

/// Parses a stored document.
pub(crate) fn view(key: &Key, version: Version, source: &str) -> Result<View, Error> {
    let stored = Stored::parse(source).map_err(|e| {
        Error::damaged(format!("the stored document cannot be used in a transaction: {e}")).at(key)
    })?;
    Ok(View::Present { version, source: txn_protocol::document::flatten(source).into(), stored })
}

pub(crate) fn missing_collection(key: &Key) -> Error {
    let message = format!("the collection {:?} does not exist (any more)", key.collection);
    Error::new(ErrorKind::Misconfigured, message).at(key)
}
