//! The store contract: what the engine needs of a document store, and nothing more.
//!
//! The law of the house: **only an acknowledged conditional write is knowledge.** A read shows
//! what may be tried next; it may be stale, and it may show a write that is never acknowledged
//! and vanishes. Outcomes are data, not errors: a batch is a list of independent single-document
//! operations, and each has an outcome of its own.
//!
//! # What a store guarantees
//! - An acknowledged write ([`Outcome::Applied`]) is durable, and a conditional one replaced exactly
//!   the version that it named.
//! - A version ([`Version`]) is never given to two contents of one document of one collection, also
//!   after the document was deleted and after a restart. A collection that is dropped and made again
//!   is another one, with another [`CollectionInfo::uid`]; its versions differ as well wherever the
//!   store can do that (Elasticsearch cannot, so the engine compares uids, too).
//! - After an acknowledged write, no write that is conditioned on an older version of the document
//!   can succeed any more.
//! - A write into a dropped collection fails; it never brings the collection back.
//! - Sources come back with the bytes of every key and value as they were written. White space
//!   between tokens may change.
//!
//! # What a store must never do
//! - **Retry a write by itself**, at any layer. A retried conditional write turns its own success
//!   into a conflict, and a retried `create` can bring a deleted document back.
//! - Answer [`Outcome::Rejected`] or [`Outcome::Invalid`] for a write whose fate it does not know: that is
//!   [`Outcome::RejectedInDoubt`] or [`Outcome::Unknown`]. Only what was never sent, a request that was refused
//!   whole before any item ran, and a document that does not fit are definite.
//!
//! # What is *not* guaranteed
//! A [`Outcome::Conflict`] is no proof that the write did not happen: a request may fork on a
//! reconnect and race with itself. Nor is [`Outcome::RejectedInDoubt`] or [`Outcome::MissingCollection`]: inside
//! Elasticsearch an item is sent on again after the connection to its primary broke, and reports its last try
//! only. The engine settles all of them by a further acknowledged write.

mod collection;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod embedded;
pub mod fields;
mod layer;
mod memory;
mod pages;
mod shown;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;

pub use collection::{CollectionIdentity, CollectionInfo, CollectionSpec, Role};
pub use layer::Layer;
pub use memory::MemoryStore;
pub use pages::Pages;

/// The name of one document: collection, id, and the routing value it was written with.
///
/// `collection` is a *physical* name as [`Store::open_collection`] returned it, or the alias of a
/// partition of the transaction table. Keys order by collection, id, routing; the engine locks in that order.
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
    /// A key without routing.
    pub fn new(collection: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { collection: collection.into(), id: id.into(), routing: None }
    }

    /// The same key with a routing value.
    #[must_use]
    pub fn routed(mut self, routing: impl Into<Arc<str>>) -> Self {
        self.routing = Some(routing.into());
        self
    }
}

/// Most keys of a process have the very same name of their collection, and most that are equal are clones: that is seen without a
/// look at their text.
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

/// The version of one document: Elasticsearch's `_seq_no` and `_primary_term`, and the index that they count in.
///
/// A `seq_no` alone may be used again after a failover, and both numbers in an index that is dropped and made again. Compare
/// for equality only; the engine draws no conclusion from the order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Version {
    /// The number of the collection: each collection that is made has another one. Records store
    /// the number as a JSON number, so it is below 2<sup>63</sup>. Zero in a store without such
    /// numbers. There `seq_no` never returns, and the engine cannot notice a commit that is lost
    /// with its collection.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The term of the primary that took the write.
    pub term: u64,
    /// The position of the write in its history.
    pub seq_no: u64,
}

impl Version {
    /// The version with the longest text.
    pub const MAX: Self = Self { incarnation: u64::MAX, term: u64::MAX, seq_no: u64::MAX };

    /// A version without an incarnation.
    #[must_use]
    pub const fn new(term: u64, seq_no: u64) -> Self {
        Self { incarnation: 0, term, seq_no }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The text of one JSON object. The engine hands out sources without raw CR or LF (a raw line
/// feed inside a bulk request starts another action) and without duplicate keys.
pub type Source = Arc<str>;

/// What a read shows of one document.
#[derive(Clone, PartialEq, Eq)]
pub enum Read {
    /// The document, and the version that it stood at.
    Found {
        /// The version to condition the next write on.
        version: Version,
        /// The stored JSON object.
        source: Source,
    },
    /// The collection exists, the document does not.
    Absent,
    /// No collection and no alias of that name.
    MissingCollection,
    /// The store could not answer; nothing is known. The text says why, without document bodies.
    Unavailable(StoreError),
}

/// One single-document operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The document.
    pub key: Key,
    /// Write only if `key.collection` names an alias. Used for the partitions of the transaction
    /// table, so that a late write cannot bring a dropped partition back.
    pub require_alias: bool,
    /// The operation.
    pub op: WriteOp,
}

impl Write {
    /// A write that goes to a collection by its physical name.
    #[must_use]
    pub fn new(key: Key, op: WriteOp) -> Self {
        Self { key, require_alias: false, op }
    }
}

/// What a [`Write`] does.
#[derive(Clone, PartialEq, Eq)]
pub enum WriteOp {
    /// Writes the document if there is none with this key: [`Outcome::Applied`] or
    /// [`Outcome::Conflict`].
    Create(Source),
    /// Replaces the document if it is at the version: [`Outcome::Applied`] with the new version, or
    /// [`Outcome::Conflict`], also when there is no document.
    Replace(Source, Version),
    /// Deletes the document if it is at the version: [`Outcome::Applied`] with the version of the
    /// deletion, or [`Outcome::Conflict`], also when there is no document.
    Delete(Version),
    /// Dry run: would this source be accepted by the collection? Writes no document and moves no
    /// version, whether or not the document exists. [`Outcome::Holds`] or [`Outcome::Invalid`].
    Check(Source),
    /// Is the document still at the version (`Some`), or still absent (`None`)? Answered by the
    /// primary, after every write that it has acknowledged. Writes nothing and moves no version.
    /// [`Outcome::Holds`] or [`Outcome::Conflict`].
    Verify(Option<Version>),
}

impl WriteOp {
    /// The bytes of document this operation carries.
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

/// What became of one [`Write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged: the write is durable at this version.
    Applied(Version),
    /// A [`WriteOp::Check`] or [`WriteOp::Verify`] whose condition holds.
    Holds,
    /// The condition did not hold. For a write this is *not* proof that it did not happen (see the
    /// module).
    Conflict,
    /// There is no such collection, or, with [`Write::require_alias`], no such alias, as far as the last try saw.
    /// An earlier try inside the store may have been applied.
    MissingCollection,
    /// Not applied and never will be; the same write may succeed later (nobody listening, a request refused
    /// whole before any item ran, a store that never sends a write on again). The text says why.
    Rejected(String),
    /// The last try was refused for the moment (a full queue, a write block, a closed index); an earlier try inside
    /// the store may have been applied. The text says why.
    RejectedInDoubt(String),
    /// Refused; the same write will fail again. Not applied and never will be, but for
    /// [`RefusalKind::Denied`], before which an earlier try inside the store may have been applied.
    Invalid(Refusal),
    /// Applied, not applied, or to be applied later. The text says why nothing more is known.
    Unknown(String),
}

impl Outcome {
    /// The same answer to a later try, where an earlier one is in doubt: then no refusal is proof of anything.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Rejected(why) => Self::RejectedInDoubt(why),
            Self::Invalid(refusal) => Self::RejectedInDoubt(refusal.reason),
            other => other,
        }
    }

    /// Whether this is proof that the write did not happen and never will.
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

/// Why a store refuses a write for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of fault it is.
    pub kind: RefusalKind,
    /// The store's own words, which name the field where there is one. No document bodies.
    pub reason: String,
}

/// Kinds of [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The document does not fit the mapping of the collection, or is not a JSON object.
    Document,
    /// The id or the routing is empty or too long.
    Id,
    /// The document or the request exceeds a size limit.
    TooLarge,
    /// The credentials do not allow it.
    Denied,
    /// The store can never be reached in this way, or a setting of it forbids every such write; the reason names the
    /// remedy. Nothing of the write was applied.
    Misconfigured,
    /// What the store holds is damaged, so that it cannot be written: restore it. Nothing of the write was applied.
    Damaged,
    /// A block of the collection forbids every write until an operator, or a disk with room, lifts
    /// it; the reason names the remedy. Only the answer to [`WriteOp::Check`]: a blocked write may
    /// have been applied by an earlier try inside the store.
    Blocked,
}

/// Bounds that every caller can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Longest id and longest routing, in bytes of UTF-8.
    pub max_id_bytes: usize,
    /// Largest source of one document, in bytes.
    pub max_document_bytes: usize,
    /// Whether few large requests are cheaper than many small ones, so that the operations of many callers should share
    /// them. Default false: right for a store that is asked without a round trip, or that groups commits by itself.
    pub shares_requests: bool,
    /// Whether a commit is so slow that transactions on the same documents should be merged into
    /// one commit. Default false: right for a store in memory.
    pub merges_transactions: bool,
}

impl Limits {
    /// Limits from their two figures, in bytes.
    #[must_use]
    pub const fn new(max_id_bytes: usize, max_document_bytes: usize) -> Self {
        let (shares_requests, merges_transactions) = (false, false);
        Self { max_id_bytes, max_document_bytes, shares_requests, merges_transactions }
    }

    /// Sets [`Limits::shares_requests`].
    #[must_use]
    pub const fn with_shares_requests(mut self, shares_requests: bool) -> Self {
        self.shares_requests = shares_requests;
        self
    }

    /// Sets [`Limits::merges_transactions`].
    #[must_use]
    pub const fn with_merges_transactions(mut self, merges_transactions: bool) -> Self {
        self.merges_transactions = merges_transactions;
        self
    }

    /// Whether a write is within these limits: checked by the engine before the first lock, and by
    /// stores before they send anything.
    ///
    /// # Errors
    /// The refusal that the store would answer.
    pub fn check(&self, key: &Key, source_len: usize) -> Result<(), Refusal> {
        let refuse = |kind, reason| Err(Refusal { kind, reason });
        for (what, value) in [("id", Some(&key.id)), ("routing", key.routing.as_ref())] {
            let Some(value) = value else { continue };
            if value.is_empty() {
                return refuse(RefusalKind::Id, format!("the {what} is empty"));
            }
            if value.len() > self.max_id_bytes {
                let (len, max) = (value.len(), self.max_id_bytes);
                return refuse(
                    RefusalKind::Id,
                    format!("the {what} has {len} bytes, the limit is {max}"),
                );
            }
        }
        if source_len > self.max_document_bytes {
            let max = self.max_document_bytes;
            let reason = format!("the document has {source_len} bytes, the limit is {max}");
            return refuse(RefusalKind::TooLarge, reason);
        }
        Ok(())
    }
}

/// Which documents a scan is about. Fields are top-level keyword fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All of them.
    All,
    /// Those where the field is present and not null.
    Exists(&'static str),
    /// Those where the field has one of the values, or is a list that holds one of them.
    AnyOf(&'static str, Vec<Arc<str>>),
}

impl Filter {
    /// The documents where the field has one of the values, or is a list that holds one of them.
    #[must_use]
    pub fn any_of<V: Into<Arc<str>>>(
        field: &'static str,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self::AnyOf(field, values.into_iter().map(Into::into).collect())
    }
}

/// Where a scan goes on. Opaque, valid for at least a minute after the page it came with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// One page of a scan.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Documents with their versions at the time of the scan.
    pub documents: Vec<(Key, Version, Source)>,
    /// Where to go on; `None` when the scan is complete.
    pub next: Option<Cursor>,
}

/// A document store with conditional writes. See the [module](self) for what it guarantees.
///
/// Every method is cancel safe in this sense: dropping the future leaves the outcome of its writes
/// unknown, and never half a document. No method waits without bound: a store has a request timeout
/// of its own and answers [`Outcome::Unknown`] or [`StoreErrorKind::Unavailable`] when it passes.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The bounds of this store.
    fn limits(&self) -> Limits;

    /// How long a request may be under way until the store gives it up. What is unknown after this
    /// time may still be applied later.
    fn request_timeout(&self) -> std::time::Duration;

    /// Reads documents: one [`Read`] per key, in order. May be stale.
    async fn get_many(&self, keys: &[Key]) -> Vec<Read>;

    /// Reads documents from their primary: what is shown is not older than any write acknowledged
    /// before the call. One [`Read`] per key, in order. It may show a write whose acknowledgement
    /// is under way.
    async fn read_primary(&self, keys: &[Key]) -> Vec<Read>;

    /// Carries out independent writes: one [`Outcome`] per write, in order. Writes of different documents may
    /// happen in any order. Two writes to one document in one call happen in their order.
    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome>;

    /// Makes every acknowledged write of the collection visible to [`Store::scan`].
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection.
    async fn refresh(&self, collection: &str) -> Result<(), StoreError>;

    /// One page of the documents of a collection, at most `size` of them, in no particular order.
    /// Pages of one scan together hold every document that was visible (see [`Store::refresh`])
    /// when the scan began, once. A cursor is used once: where its page does not come, the scan begins anew ([`Pages`]).
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

    /// Checks and prepares a collection, and makes it where the spec says so. Idempotent.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if it is missing and not to be made;
    /// [`StoreErrorKind::Misconfigured`] if it cannot serve transactions, naming the remedy.
    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError>;

    /// Asks the server which collection a name stands for now. The answer is never from memory, and the call changes
    /// nothing. An alias stands for its one collection, or for the one of its collections that takes its writes.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection and no such alias;
    /// [`StoreErrorKind::Misconfigured`] if the name stands for several collections, and none takes the writes.
    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError>;

    /// Drops a collection with its documents and aliases; dropping a missing one succeeds.
    async fn drop_collection(&self, name: &str) -> Result<(), StoreError>;

    /// Adds an alias to an existing collection. Idempotent. [`StoreErrorKind::NotFound`] if the collection does not exist.
    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError>;

    /// Sets or lifts a write block. Once it is acknowledged as set, no write to the collection is
    /// applied ([`Outcome::Rejected`], [`Outcome::RejectedInDoubt`]) until it is lifted. [`Store::get_many`] and scans go on;
    /// primary reads may be unavailable, checks and verifies rejected. Idempotent.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection.
    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError>;

    /// The physical names of all collections that begin with `prefix`, in no particular order; aliases are not among
    /// them. Holds every collection whose making was acknowledged before the call and whose dropping was not begun.
    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError>;

    /// Takes off what [`Store::open_collection`] put on a collection of the roles [`Role::Data`] and [`Role::System`]: the owner, and
    /// whatever the store itself added and can take away. Documents and mapped fields stay. Idempotent.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such collection.
    async fn release_collection(&self, collection: &str) -> Result<(), StoreError>;

    /// What the server's clock says: the time since the Unix epoch, at a moment between call and answer. `None` where
    /// the store has no server or the server tells no time.
    async fn server_time(&self) -> Result<Option<std::time::Duration>, StoreError>;
}

/// Why an administrative operation or a read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// What kind of fault it is.
    pub kind: StoreErrorKind,
    /// What happened, to what, and what to do. No secrets, no document bodies.
    pub message: String,
}

/// Kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The store does not answer now; try again later.
    Unavailable,
    /// There is no such collection.
    NotFound,
    /// The collection, the name or the server is not fit for the purpose; the message names the remedy.
    Misconfigured,
    /// The credentials are missing, wrong, or do not allow it.
    Denied,
    /// What the store holds is damaged: trying again does not help, it has to be restored.
    Damaged,
    /// A block forbids it until an operator, or a disk with room, lifts the block; the message
    /// names the remedy.
    Blocked,
}

impl StoreError {
    /// An error of a kind, with its message.
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
