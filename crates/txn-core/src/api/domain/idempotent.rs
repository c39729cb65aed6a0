//! Idempotent transactions: a repetition under the same key receives the first answer.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base16ct::HexDisplay;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::api::admin::report::Fault;
use crate::api::collection::{Collection, DecodeError, Typed};
use crate::api::domain::{Domain, TransactionFn};
use crate::api::transaction::Transaction;
use crate::attempt::Receipt;
use crate::config::Options;
use crate::engine::attempt_error::AttemptError;
use crate::engine::store::pages::PAGE;
use crate::error::{Error, ErrorKind, Result};
use txn_store::{Filter, Key, LAST_DATE_MS};

/// The system of the collection with the answers.
const SYSTEM: &str = "idempotency";

/// The newest format of a stored answer.
const FORMAT: u32 = 1;

/// The number of expired answers that one transaction deletes.
const DELETIONS: usize = 100;

/// The number of unreadable answers that a purge names.
const NAMED: usize = 100;

/// Mappings of the collection with the answers. A purge searches the times.
const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{
    "format":{"type":"integer"},"request":{"type":"text","index":false},
    "expires_ms":{"type":"date","format":"epoch_millis"},"answer":{"type":"text","index":false}}}"#;

/// The key of a request. Each repetition of the request has the same key.
#[derive(Clone, Debug)]
pub struct IdempotencyKey {
    key: Arc<str>,
    ttl: Duration,
    request: Option<String>,
}

impl IdempotencyKey {
    /// Creates a key whose answer is kept for `ttl`.
    ///
    /// After that time the same request under the same key has a second effect. `ttl` must exceed
    /// the time in which a caller may repeat the request, and end before the year 10000. The key is
    /// the id of a document, so the store bounds its length
    /// ([`Limits::max_id_bytes`](crate::store::Limits::max_id_bytes)).
    pub fn new(key: impl Into<Arc<str>>, ttl: Duration) -> Self {
        Self { key: key.into(), ttl, request: None }
    }

    /// Binds the key to the text of a request.
    ///
    /// Another request under the same key then fails. The digest (SHA-256) of the text is stored,
    /// and not the text.
    #[must_use]
    pub fn for_request(mut self, request: impl AsRef<[u8]>) -> Self {
        let digest = Sha256::digest(request);
        self.request = Some(format!("{:x}", HexDisplay(&digest)));
        self
    }
}

/// The answer of an idempotent closure. Both kinds are stored under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// Commits the writes of the closure together with this answer.
    Commit(T),
    /// Drops the writes of the closure, and stores this answer alone.
    Refuse(T),
}

/// The result of [`Domain::idempotent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answered<T> {
    /// The answer of this call's closure or of an earlier call.
    pub value: T,
    /// Whether an earlier call with this key gave the answer.
    pub repeated: bool,
    /// The receipt of the commit; `None` for a repetition.
    pub receipt: Option<Receipt>,
}

/// The result of [`Domain::purge_answers`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgedAnswers {
    /// The number of deleted answers.
    pub deleted: usize,
    /// The answers that cannot be read, at most 100. The purge keeps these answers.
    pub unreadable: Vec<Fault>,
    /// The number of all answers that cannot be read.
    pub unreadable_total: usize,
}

impl PurgedAnswers {
    fn note(&mut self, document: &Key, error: &Error) {
        self.unreadable_total += 1;
        if self.unreadable.len() < NAMED {
            self.unreadable.push(Fault::of(document, error));
        }
    }
}

/// The document under an idempotency key.
#[derive(Serialize, Deserialize)]
struct StoredAnswer {
    format: u32,
    request: Option<String>,
    expires_ms: u64,
    /// The answer as JSON text.
    answer: String,
}

/// Leaves the answer out of logs.
impl fmt::Debug for StoredAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredAnswer").field("expires_ms", &self.expires_ms).finish_non_exhaustive()
    }
}

type Answers = Collection<Typed<StoredAnswer>>;

/// The value of a closure that did not fail.
enum Given<T> {
    First(T),
    /// The stored text of an earlier answer.
    Repeated(String),
}

/// The reason why a closure did not commit.
enum Halt<T, E> {
    Refused(T),
    Failed(E),
}

impl<T, E: From<Error>> From<Error> for Halt<T, E> {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Domain {
    /// Runs a transaction once per key, and repeats the first answer.
    ///
    /// The answer is a document of the collection `<domain>-idempotency`. The write of this
    /// document and the writes of the closure are one transaction. An [`Answer::Refuse`] is stored
    /// in a transaction of its own. A caller may therefore repeat the call after every error, at
    /// once and in another process, even after [`ErrorKind::Unknown`]. An error of the closure is
    /// not stored, so the closure runs again for the repetition.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use txn_core::{Answer, Collection, Domain, Error, IdempotencyKey, Options, Raw};
    /// # async fn order(
    /// #     domain: &Domain, orders: &Collection<Raw>, request: &str, order: &str,
    /// # ) -> Result<String, Error> {
    /// let key = IdempotencyKey::new(request, Duration::from_secs(86_400)).for_request(order);
    /// let answered = domain
    ///     .idempotent(&key, &Options::default(), async |tx| {
    ///         let id = format!("order-{request}");
    ///         tx.insert(orders, &id, &Raw::new(order))?;
    ///         Ok::<_, Error>(Answer::Commit(id))
    ///     })
    ///     .await?;
    /// # Ok(answered.value)
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Invalid`] if the time of the key ends after the year 9999, before any lock.
    /// - [`ErrorKind::KeyReused`] if another request was answered under the key.
    /// - [`ErrorKind::WrongType`] if the stored answer is not a `T`.
    /// - The error of the closure, or an error of the engine.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the transaction happens completely or not at all. Repeat
    /// the call.
    pub async fn idempotent<T, E, F>(
        &self,
        key: &IdempotencyKey,
        options: &Options,
        closure: F,
    ) -> Result<Answered<T>, E>
    where
        T: Serialize + DeserializeOwned + Send,
        E: From<Error> + Send,
        F: for<'t> TransactionFn<'t, Answer<T>, E> + Sync,
    {
        self.expires_ms(key)?;
        let answers = self.answers().await?;
        let done = self
            .run(options, async |tx: &Transaction| {
                if let Some(text) = self.answer_of(tx, &answers, key).await? {
                    return Ok(Given::Repeated(text));
                }
                match closure(tx).await.map_err(Halt::Failed)? {
                    Answer::Commit(value) => {
                        self.keep_answer(tx, &answers, key, &encoded(&value)?)?;
                        Ok(Given::First(value))
                    }
                    Answer::Refuse(value) => Err(Halt::Refused(value)),
                }
            })
            .await;
        let refused = match done {
            Ok(done) => return answered(key, done.value, Some(done.receipt)).map_err(E::from),
            Err(Halt::Failed(error)) => return Err(error),
            Err(Halt::Refused(value)) => value,
        };
        let text = encoded(&refused)?;
        let found = self.keep_refusal(&answers, key, &text, options).await?;
        let given = found.map_or(Given::First(refused), Given::Repeated);
        answered(key, given, None).map_err(E::from)
    }

    /// Deletes the answers whose time has passed.
    ///
    /// Call it now and then, in any number of processes. The cost is a search, and two reads and a
    /// write of each deleted answer. An answer is kept for its time and for
    /// [`Config::with_max_drift`](crate::Config::with_max_drift). A domain without answers gets no
    /// collection by this call.
    ///
    /// The purge keeps an answer that cannot be read, names the answer in its result, and goes on.
    /// It does not find a document without a readable time.
    ///
    /// ```
    /// # use txn_core::{Domain, Error};
    /// # async fn nightly(domain: &Domain) -> Result<(), Error> {
    /// let purged = domain.purge_answers().await?;
    /// println!("{purged:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of the engine and of the store. Deleted answers stay deleted.
    pub async fn purge_answers(&self) -> Result<PurgedAnswers> {
        let name = self.collection_name(SYSTEM);
        let answers: Answers = match self.collection(&name).await {
            Ok(answers) => answers,
            // The domain has no answer yet.
            Err(error) if error.is_not_found() => return Ok(PurgedAnswers::default()),
            Err(error) => return Err(error),
        };
        let store = &self.engine.store;
        let passed_ms = i64::try_from(self.passed_ms()).unwrap_or(i64::MAX);
        let expired = Filter::range("expires_ms", ..passed_ms);
        let (mut purged, mut unreadable) = (PurgedAnswers::default(), BTreeSet::new());
        let deadline = || self.engine.context.deadline(self.config().timeout);
        let refreshed = store.refresh(answers.name(), &deadline()).await;
        refreshed.map_err(AttemptError::into_error)?;
        let mut pages = store.pages(answers.name(), expired, PAGE);
        loop {
            let page = store.next_page(&mut pages, &deadline()).await;
            let Some(page) = page.map_err(AttemptError::into_error)? else { return Ok(purged) };
            // A search may show a document twice.
            let ids = page.into_iter().map(|(key, ..)| key.id);
            let ids: Vec<Arc<str>> = ids.filter(|id| !unreadable.contains(id)).collect();
            for ids in ids.chunks(DELETIONS) {
                unreadable.extend(self.delete_readable(&answers, ids, &mut purged).await?);
            }
        }
    }

    /// Deletes expired answers. Returns and names those that cannot be read.
    async fn delete_readable(
        &self,
        answers: &Answers,
        ids: &[Arc<str>],
        purged: &mut PurgedAnswers,
    ) -> Result<Vec<Arc<str>>> {
        let mut unreadable = Vec::new();
        match self.delete_expired(answers, ids).await {
            Ok(deleted) => purged.deleted += deleted,
            Err(error) if is_unreadable(&error) => {
                for id in ids {
                    match self.delete_expired(answers, std::slice::from_ref(id)).await {
                        Ok(deleted) => purged.deleted += deleted,
                        Err(error) if is_unreadable(&error) => {
                            purged.note(&Key::new(answers.name(), id.clone()), &error);
                            unreadable.push(id.clone());
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
        Ok(unreadable)
    }

    /// Deletes the answers among `ids` whose time has passed, in one transaction.
    async fn delete_expired(&self, answers: &Answers, ids: &[Arc<str>]) -> Result<usize> {
        let deleted = self.transact::<_, Error, _>(async |tx| {
            let found = tx.get_many(answers, ids).await?;
            let mut deleted = 0;
            for (id, _) in ids.iter().zip(found).filter(|(_, entry)| self.is_expired(entry)) {
                tx.delete(answers, id)?;
                deleted += 1;
            }
            Ok(deleted)
        });
        deleted.await
    }

    /// The collection with the answers. The first call opens or creates the collection.
    async fn answers(&self) -> Result<Answers> {
        let open = async || {
            let name = self.collection_name(SYSTEM);
            self.create_system_collection::<Typed<StoredAnswer>>(&name, MAPPINGS)
                .await
                .map(|it| it.name)
        };
        Ok(Collection::new(self.answers.get_or_try_init(open).await?.clone()))
    }

    /// The stored answer of the key as text. `None` if the time of the key has passed.
    async fn answer_of(
        &self,
        tx: &Transaction,
        answers: &Answers,
        key: &IdempotencyKey,
    ) -> Result<Option<String>> {
        let found = tx.get(answers, &key.key).await?;
        let Some(entry) = found.filter(|entry| !self.is_past(entry.expires_ms)) else {
            return Ok(None);
        };
        if entry.format > FORMAT {
            let message = format!(
                "a newer version of this library wrote the answer of the key {:?} (format {})",
                key.key, entry.format
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        if entry.request != key.request {
            let message = format!(
                "another request was answered under the key {:?}: give each request its own key",
                key.key
            );
            return Err(Error::new(ErrorKind::KeyReused, message));
        }
        Ok(Some(entry.answer))
    }

    fn keep_answer(
        &self,
        tx: &Transaction,
        answers: &Answers,
        key: &IdempotencyKey,
        answer: &str,
    ) -> Result<()> {
        let entry = StoredAnswer {
            format: FORMAT,
            request: key.request.clone(),
            expires_ms: self.expires_ms(key)?,
            answer: answer.to_owned(),
        };
        tx.put(answers, &key.key, &entry)
    }

    /// The moment until which an answer of now is kept. A date ends with the year 9999.
    fn expires_ms(&self, key: &IdempotencyKey) -> Result<u64> {
        let expires_ms = u128::from(self.engine.time.unix_millis()) + key.ttl.as_millis();
        let known = u64::try_from(expires_ms).ok().filter(|at| *at <= LAST_DATE_MS);
        known.ok_or_else(|| {
            let message = format!(
                "the answer of the key {:?} would be kept beyond the year 9999: give the key a \
                 shorter time",
                key.key
            );
            Error::invalid(message)
        })
    }

    /// Stores a refusal. Returns the stored answer if another call was faster.
    async fn keep_refusal(
        &self,
        answers: &Answers,
        key: &IdempotencyKey,
        answer: &str,
        options: &Options,
    ) -> Result<Option<String>> {
        let kept = self.run::<_, Error, _>(options, async |tx| {
            let found = self.answer_of(tx, answers, key).await?;
            if found.is_none() {
                self.keep_answer(tx, answers, key, answer)?;
            }
            Ok(found)
        });
        Ok(kept.await?.value)
    }

    fn is_expired(&self, entry: &Option<StoredAnswer>) -> bool {
        entry.as_ref().is_some_and(|entry| self.is_past(entry.expires_ms))
    }

    /// Whether a time has passed for each process of the domain.
    fn is_past(&self, unix_ms: u64) -> bool {
        unix_ms < self.passed_ms()
    }

    /// The moment before which each time has passed for each process of the domain.
    fn passed_ms(&self) -> u64 {
        let drift = u64::try_from(self.config().max_drift.as_millis()).unwrap_or(u64::MAX);
        self.engine.time.unix_millis().saturating_sub(drift)
    }
}

/// Whether the error is one of the contents of a document.
fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WrongType | ErrorKind::Damaged)
}

fn encoded<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::invalid(format!("the answer cannot be stored: {error}")))
}

fn answered<T: DeserializeOwned>(
    key: &IdempotencyKey,
    given: Given<T>,
    receipt: Option<Receipt>,
) -> Result<Answered<T>> {
    match given {
        Given::First(value) => Ok(Answered { value, repeated: false, receipt }),
        Given::Repeated(text) => {
            let value = serde_json::from_str(&text).map_err(|error| {
                let place = DecodeError::from(error);
                let message = format!("the answer under the key {:?}: {place}", key.key);
                Error::new(ErrorKind::WrongType, message)
            })?;
            Ok(Answered { value, repeated: true, receipt: None })
        }
    }
}
