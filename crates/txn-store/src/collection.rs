//! Collections: their roles, the request to open one, and their identity.

use std::sync::Arc;

use crate::Source;
#[cfg(doc)]
use crate::Store;

/// The purpose of a collection. The store prepares the collection for its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Documents of the application, with the reserved fields added.
    Data {
        /// The owning domain, which the store mirrors into the collection's metadata.
        ///
        /// With `None` the store leaves the metadata unchanged.
        owner: Option<String>,
    },
    /// Documents of a system on top of the engine, such as locks.
    ///
    /// The documents have the reserved fields. No other program writes to the collection. A store
    /// that creates the collection sets all settings explicitly.
    System {
        /// The owning domain, as in [`Role::Data`].
        owner: Option<String>,
    },
    /// The registry: domain documents and claims of collections. The engine reads these documents
    /// by key only.
    Registry,
    /// One partition of a transaction table. The engine searches the top-level keyword fields
    /// `state` and `deletes`.
    Partition,
}

impl Role {
    /// Returns the owning domain, for the roles with documents of transactions.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Data { owner } | Self::System { owner } => owner.as_deref(),
            Self::Registry | Self::Partition => None,
        }
    }
}

/// The collection to open, and whether to create it.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectionSpec {
    /// The name, which may be an alias of one collection.
    pub name: String,
    /// The purpose of the collection.
    pub role: Role,
    /// Whether the store creates a missing collection.
    pub create: bool,
    /// Mappings and settings of a new collection, in the store's JSON format.
    ///
    /// On Elasticsearch and OpenSearch: `{"mappings": {"properties": …}, "settings": …}`, or the
    /// inner mappings alone. Stores without mappings ignore this field. An existing collection
    /// stays unchanged, with one exception: a strict collection gets missing fields if `create` is
    /// true and the role has an owner.
    pub mappings: Option<Source>,
}

/// The result of [`Store::open_collection`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// The physical name, with aliases resolved. Keys need this name.
    pub name: Arc<str>,
    /// The identity of the collection. A collection that is dropped and created again has another
    /// one.
    pub uid: Arc<str>,
    /// The owning domain according to the metadata of the collection. A hint for operators: the
    /// registry decides the ownership.
    pub owner: Option<String>,
}

/// The collection behind a name, as [`Store::identify`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionIdentity {
    /// The physical name, with aliases resolved.
    pub name: Arc<str>,
    /// The same as [`CollectionInfo::uid`].
    pub uid: Arc<str>,
    /// The same as [`Version::incarnation`](crate::Version::incarnation) of the collection's
    /// documents.
    pub incarnation: u64,
}
