//! Collections: what they are for, what to open, and which one a name stands for.

use std::sync::Arc;

use crate::Source;
#[cfg(doc)]
use crate::Store;

/// What a collection is for; a store prepares it accordingly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Documents of the application, with the reserved fields beside their own.
    Data {
        /// The domain that owns it, mirrored into the collection's own metadata; `None` only looks
        /// and leaves the metadata alone.
        owner: Option<String>,
    },
    /// Documents of a system on top of the engine, such as locks, with the reserved fields beside their own: nothing else
    /// writes to them. Where the collection is made, the store states all settings by itself.
    System {
        /// The domain that owns it, as of [`Role::Data`].
        owner: Option<String>,
    },
    /// The registry: domain documents and claims of collections. Found by key only.
    Registry,
    /// One partition of a transaction table. Searched by the top-level keyword fields `state` and
    /// `deletes`.
    Partition,
}

impl Role {
    /// The domain that a collection with documents of transactions is opened for.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Data { owner } | Self::System { owner } => owner.as_deref(),
            Self::Registry | Self::Partition => None,
        }
    }
}

/// What to open, and whether to make it.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectionSpec {
    /// The name, which may be an alias of one collection.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Make it if it is missing.
    pub create: bool,
    /// Mappings and settings of a collection that is made: a JSON object, in the words of the store (on
    /// Elasticsearch and OpenSearch `{"mappings": {"properties": …}, "settings": …}`, or the inner
    /// mappings alone); stores without mappings ignore it. Of a collection that exists it changes nothing, but that one which
    /// takes mapped fields alone gets those that it lacks, if it is to be made unless it is there and has an owner.
    pub mappings: Option<Source>,
}

/// What [`Store::open_collection`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// The physical name, with aliases resolved: use it in keys.
    pub name: Arc<str>,
    /// Identity of this very collection: a collection dropped and made again has another.
    pub uid: Arc<str>,
    /// The owning domain, by the collection's own metadata. A hint for people: ownership itself is
    /// decided in the registry.
    pub owner: Option<String>,
}

/// Which collection a name stands for, as [`Store::identify`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionIdentity {
    /// The physical name, with aliases resolved.
    pub name: Arc<str>,
    /// The same as [`CollectionInfo::uid`].
    pub uid: Arc<str>,
    /// The same as [`Version::incarnation`](crate::Version::incarnation) of its documents.
    pub incarnation: u64,
}
