//! The store contract: what the engine needs of a document store.
//!
//! The acknowledgement rule: **only an acknowledged conditional write is knowledge.** A read
//! suggests the next write. A read may be stale, and may show a write that is never acknowledged
//! and vanishes. Outcomes are data, not errors: a batch is a list of independent single-document
//! operations, each with its own outcome.
//!
//! # What a store guarantees
//! - An acknowledged write ([`Outcome::Applied`]) is durable. An acknowledged conditional write
//!   replaced exactly the version that the write named.
//! - A store never gives one [`Version`] to two contents of one document of one collection, even
//!   after a deletion or a restart. A collection that is dropped and created again is a new
//!   collection, with a new [`CollectionInfo::uid`] and another [`Version::incarnation`].
//! - After an acknowledged write, no write that is conditioned on an older version of the document
//!   succeeds.
//! - A write to a dropped collection fails, and never recreates the collection.
//! - Sources keep the bytes of every key and value. White space between tokens may change.
//!
//! # What a store must never do
//! - **Retry a write**, at any layer. A retried conditional write turns its own success into a
//!   conflict, and a retried `create` can bring a deleted document back.
//! - Answer [`Outcome::Rejected`] or [`Outcome::Invalid`] for a write whose fate is unknown: the
//!   right answer is [`Outcome::RejectedInDoubt`] or [`Outcome::Unknown`]. A write is definitely
//!   not applied in three cases: the store never sent it, the server refused the whole request
//!   before any item ran, or the document does not fit.
//!
//! # What is *not* guaranteed
//! An [`Outcome::Conflict`] is no proof that the write did not happen: a request may fork on a
//! reconnect and race with itself. [`Outcome::RejectedInDoubt`] and [`Outcome::MissingCollection`]
//! are no proof either. Elasticsearch sends an item again internally after the connection to its
//! primary broke, and reports only the last try. The engine settles all three outcomes by a further
//! acknowledged write.

mod collection;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod embedded;
pub mod fields;
mod filter;
mod layer;
mod limits;
mod memory;
mod pages;
mod shown;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;

pub use collection::{CollectionIdentity, CollectionInfo, CollectionSpec, Role};
pub use filter::Filter;
pub use layer::Layer;
pub use limits::Limits;
pub use memory::MemoryStore;
pub use pages::Pages;

/// The name of one document: collection, id, and routing value.
///
/// `collection` is a *physical* name as [`Store::open_collection`] returned it, or the alias of a
/// partition of the transaction table. Keys sort by collection, id, routing. A bulk lists
/// locks in this order; deadlock freedom does not depend on it.
#[derive(Clone)]
pub struct Key {
    /// The collection (index) that holds the document.
    pub collection: Arc<str>,
    /// The id, unique within collection and routing. Between 1 and [`Limits::max_id_bytes`] bytes.
    pub id: Arc<str>,
    /// The routing value, if the document is written with one.
    pub routing: Option<Arc<str>>,
}

impl Key {
    /// Creates a key without routing.
    pub fn new(collection: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { collection: collection.into(), id: id.into(), routing: None }
    }

    /// Returns the same key with a routing value.
    #[must_use]
    pub fn routed(mut self, routing: impl Into<Arc<str>>) -> Self {
        self.routing = Some(routing.into());
        self
    }
}

/// Compares pointers before text.
///
/// Most keys of a process share the name of their collection, and most equal keys are clones.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let compare = |one: &Arc<str>, other: &Arc<str>| match Arc::ptr_eq(one, other) {
            true => Ordering::Equal,
            false => one.cmp(other),
        };
        compare(&self.collection, &other.collection)
            .then_with(|| compare(&self.id, &other.id))
            .then_with(|| self.routing.cmp(&other.routing))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.collection, &self.id, &self.routing).hash(state);
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collection, self.id)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The version of one document: `_seq_no`, `_primary_term`, and their index.
///
/// A `seq_no` alone may return after a failover, and both numbers may return in an index that is
/// dropped and created again. Compare versions for equality only. The order of two reads of a
/// document decides only which of them the engine keeps as a hint.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Version {
    /// The number of the collection. Each new collection has another number.
    ///
    /// Records store the number as a JSON number, so it is below 2<sup>63</sup>. Zero in a store
    /// without such numbers. In such a store `seq_no` never returns, and the engine cannot notice a
    /// commit that is lost with its collection.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The term of the primary that took the write.
    pub term: u64,
    /// The position of the write in the history of its primary.
    pub seq_no: u64,
}

impl Version {
    /// The version with the longest text.
    pub const MAX: Self = Self { incarnation: u64::MAX, term: u64::MAX, seq_no: u64::MAX };

    /// Creates a version without an incarnation.
    #[must_use]
    pub const fn new(term: u64, seq_no: u64) -> Self {
        Self { incarnation: 0, term, seq_no }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The text of one JSON object.
///
/// Sources from the engine contain no raw CR or LF and no duplicate keys. A raw line feed inside a
/// bulk request starts another action.
pub type Source = Arc<str>;

/// The answer of a read of one document.
#[derive(Clone, PartialEq, Eq)]
pub enum Read {
    /// The document exists.
    Found {
        /// The version of the document, and the condition of the next write.
        version: Version,
        /// The stored JSON object.
        source: Source,
    },
    /// The collection exists, the document does not.
    Absent,
    /// The name is neither a collection nor an alias.
    MissingCollection,
    /// The store could not answer, and nothing is known. The text gives the reason, without
    /// document bodies.
    Unavailable(StoreError),
}

/// One single-document operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The document.
    pub key: Key,
    /// Whether the write fails unless `key.collection` names an alias.
    ///
    /// Writes to partitions of the transaction table need this: a late write must not recreate a
    /// dropped partition.
    pub require_alias: bool,
    /// The operation.
    pub op: WriteOp,
}

impl Write {
    /// Creates a write to a collection by its physical name.
    #[must_use]
    pub fn new(key: Key, op: WriteOp) -> Self {
        Self { key, require_alias: false, op }
    }
}

/// The operation of a [`Write`].
#[derive(Clone, PartialEq, Eq)]
pub enum WriteOp {
    /// Creates the document if the key has none: [`Outcome::Applied`] or [`Outcome::Conflict`].
    Create(Source),
    /// Replaces the document at this version.
    ///
    /// [`Outcome::Applied`] with the new version, or [`Outcome::Conflict`], even if there is no
    /// document.
    Replace(Source, Version),
    /// Deletes the document at this version.
    ///
    /// [`Outcome::Applied`] with the version of the deletion, or [`Outcome::Conflict`], even if
    /// there is no document.
    Delete(Version),
    /// Checks whether the collection would accept this source: a dry run.
    ///
    /// Writes no document and moves no version, whether or not the document exists.
    /// [`Outcome::Holds`] or [`Outcome::Invalid`].
    Check(Source),
    /// Checks that the document is at the version (`Some`) or absent (`None`).
    ///
    /// The primary answers, after every write that it has acknowledged. Writes nothing and moves no
    /// version. [`Outcome::Holds`] or [`Outcome::Conflict`].
    Verify(Option<Version>),
}

impl WriteOp {
    /// Returns the size of the document that this operation carries, in bytes.
    #[must_use]
    pub fn source_len(&self) -> usize {
        match self {
            Self::Create(s) | Self::Replace(s, _) | Self::Check(s) => s.len(),
            Self::Delete(_) | Self::Verify(_) => 0,
        }
    }

    /// Whether the operation can change a document.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Replace(..) | Self::Delete(_))
    }
}

/// The result of one [`Write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged: the write is durable at this version.
    Applied(Version),
    /// The condition of a [`WriteOp::Check`] or [`WriteOp::Verify`] holds.
    Holds,
    /// The condition did not hold.
    ///
    /// For a write this is *not* proof that the write did not happen (see the module).
    Conflict,
    /// The last try found no such collection or required alias.
    ///
    /// See [`Write::require_alias`]. An earlier try inside the store may have been applied. A store
    /// of several nodes asks for the collection itself first, because a single node may lag.
    MissingCollection,
    /// The write was not applied and never will be. A retry may succeed.
    ///
    /// For example, no server is listening, the request was refused whole before any item ran, or
    /// the store never sends a write again. The text gives the reason.
    Rejected(String),
    /// The last try was refused for the moment.
    ///
    /// For example: a full queue, a write block, or a closed index. An earlier try inside the store
    /// may have been applied. The text gives the reason.
    RejectedInDoubt(String),
    /// The write was refused, and the same write will fail again.
    ///
    /// The write was not applied and never will be. The exception is [`RefusalKind::Denied`]: an
    /// earlier try inside the store may have been applied.
    Invalid(Refusal),
    /// The write was applied, was not applied, or will be applied later. The text gives the reason.
    Unknown(String),
}

impl Outcome {
    /// Weakens an outcome, because an earlier try is in doubt.
    ///
    /// After a try in doubt no refusal proves that the write did not happen.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Rejected(why) => Self::RejectedInDoubt(why),
            Self::Invalid(refusal) => Self::RejectedInDoubt(refusal.reason),
            other => other,
        }
    }

    /// Whether the outcome proves that the write never happens.
    #[must_use]
    pub fn is_certainly_not_applied(&self) -> bool {
        match self {
            Self::Rejected(_) => true,
            Self::Invalid(refusal) => refusal.kind != RefusalKind::Denied,
            Self::Applied(_)
            | Self::Holds
            | Self::Conflict
            | Self::MissingCollection
            | Self::RejectedInDoubt(_)
            | Self::Unknown(_) => false,
        }
    }
}

/// The reason why a store refuses a write for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of fault.
    pub kind: RefusalKind,
    /// The store's own words, which name the field if there is one. No document bodies.
    pub reason: String,
}

/// Kinds of [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The document does not fit the mapping, or is no JSON object. The mapping is that of the
    /// collection.
    Document,
    /// The id or the routing is empty or too long.
    Id,
    /// The document or the request exceeds a size limit.
    TooLarge,
    /// The credentials do not allow it.
    Denied,
    /// The address or a setting of the store forbids every such write.
    ///
    /// The reason names the remedy. Nothing of the write was applied.
    Misconfigured,
    /// The stored data is damaged and has to be restored. Nothing of the write was applied.
    Damaged,
    /// A block of the collection forbids every write until it is lifted.
    ///
    /// An operator lifts the block, or the server does when its disk has space again. The reason
    /// names the remedy. Only [`WriteOp::Check`] has this answer: an earlier try of a blocked write
    /// may have been applied inside the store.
    Blocked,
}

/// The last moment of a date: the end of the year 9999. In milliseconds since the Unix epoch.
pub const LAST_DATE_MS: u64 = 253_402_300_799_999;

/// The position at which a scan continues. Opaque, valid for at least a minute after its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// One page of a scan.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Documents with their versions at the time of the scan.
    pub documents: Vec<(Key, Version, Source)>,
    /// The cursor of the next page; `None` after the last page.
    pub next: Option<Cursor>,
}

/// A document store with conditional writes. The [module](self) states the guarantees.
///
/// No method waits without bound: a store has its own request timeout, and then answers
/// [`Outcome::Unknown`] or [`StoreErrorKind::Unavailable`].
///
/// # Cancel safety
/// Dropping the future of a method leaves the outcome of its writes unknown, and never leaves half
/// a document.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Returns the bounds of this store.
    fn limits(&self) -> Limits;

    /// Returns the time after which the store gives up a request.
    ///
    /// A write that is unknown after this time may still be applied later.
    fn request_timeout(&self) -> std::time::Duration;

    /// Reads documents: one [`Read`] per key, in order. May be stale.
    async fn get_many(&self, keys: &[Key]) -> Vec<Read>;

    /// Reads documents from their primary: one [`Read`] per key, in order.
    ///
    /// No answer is older than a write that was acknowledged before the call. An answer may show a
    /// write whose acknowledgement is under way.
    async fn read_primary(&self, keys: &[Key]) -> Vec<Read>;

    /// Carries out independent writes: one [`Outcome`] per write, in order.
    ///
    /// Writes of different documents may happen in any order. Writes of one document in one call
    /// happen in their order.
    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome>;

    /// Makes every acknowledged write of the collection visible to [`Store::scan`].
    async fn refresh(&self, collection: &str) -> Result<(), StoreError>;

    /// Returns one page of the documents of a collection, in any order.
    ///
    /// A page has at most `size` documents. The pages of one scan together hold each document that
    /// was visible when the scan began ([`Store::refresh`]), once. A cursor works once: if its page
    /// is lost, the scan has to begin again ([`Pages`] does so).
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection.
    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError>;

    /// Checks and prepares a collection. Idempotent.
    ///
    /// The store creates the collection if it is missing and the spec says so.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if the collection is missing and `create` is false;
    /// [`StoreErrorKind::Misconfigured`] if the collection cannot serve transactions, with the
    /// remedy.
    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError>;

    /// Asks the server which collection a name means now.
    ///
    /// The answer never comes from a cache, and the call changes nothing. An alias means its only
    /// collection, or the one of its collections that takes the writes.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection and no such alias;
    /// [`StoreErrorKind::Misconfigured`] if the name means several collections, and none takes the
    /// writes.
    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError>;

    /// Drops a collection with its documents and aliases. Dropping a missing collection succeeds.
    async fn drop_collection(&self, name: &str) -> Result<(), StoreError>;

    /// Adds an alias to an existing collection. Idempotent.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if the collection does not exist.
    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError>;

    /// Sets or lifts a write block. Idempotent.
    ///
    /// After the block is acknowledged, no write to the collection is applied
    /// ([`Outcome::Rejected`], [`Outcome::RejectedInDoubt`]) until the block is lifted.
    /// [`Store::get_many`] and scans continue. Primary reads may be unavailable, and checks and
    /// verifies may be rejected.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection.
    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError>;

    /// Lists the physical names of all collections with a prefix, without aliases.
    ///
    /// The names come in any order. The list holds every collection whose creation was acknowledged
    /// before the call and whose drop had not begun.
    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError>;

    /// Undoes [`Store::open_collection`] on a collection of the roles [`Role::Data`] and
    /// [`Role::System`].
    ///
    /// Removes the owner and all removable additions of the store. Documents and mapped fields
    /// stay. Idempotent.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection.
    async fn release_collection(&self, collection: &str) -> Result<(), StoreError>;

    /// Returns the time of the server's clock since the Unix epoch.
    ///
    /// The time is that of a moment between call and answer. `None` if the store has no server or
    /// the server tells no time.
    async fn server_time(&self) -> Result<Option<std::time::Duration>, StoreError>;
}

/// The reason why an administrative operation or a read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The kind of fault.
    pub kind: StoreErrorKind,
    /// The event, its object, and the remedy. No secrets, no document bodies.
    pub message: String,
}

/// Kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The store does not answer now. Try again later.
    Unavailable,
    /// There is no such collection.
    NotFound,
    /// The collection, the name or the server is unfit for its purpose. The message names the
    /// remedy.
    Misconfigured,
    /// The credentials are missing, wrong, or do not allow it.
    Denied,
    /// The stored data is damaged. A retry does not help: restore the data.
    Damaged,
    /// A block forbids the operation until the block is lifted.
    ///
    /// An operator lifts the block, or the server does when its disk has space again. The message
    /// names the remedy.
    Blocked,
}

impl StoreError {
    /// Creates an error from its kind and message.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}
