//! The Elasticsearch and OpenSearch store of txn-core.
//!
//! [`EsStore`] implements the store contract ([`txn_store`]) on Elasticsearch 7.17 or newer,
//! and on OpenSearch 2 or newer. The store sends only single-document operations: no scripts, no
//! ingest pipelines, no plugins.
//!
//! # Additions to a collection
//! - The reserved fields in the mapping. The `_meta` of the mapping holds the owning domain and a
//!   mark that the fields belong to this library.
//! - A hidden alias `<index>-txn-<uuid>`. All operations require this alias. So a write to a
//!   dropped index fails instead of recreating the index.
//! - An alias `<index>-committed`, which hides placeholders from plain searches.
//!
//! # Privileges
//! With security enabled, the account of a domain needs the cluster privilege `monitor` and the
//! index privileges `read`, `write`, `view_index_metadata` and `manage`. The index privileges apply
//! to `txn-registry`, `txn-registry-txn-*`, `txn-<domain>-*` and, for each collection, to
//! `<index>`, `<index>-txn-*` and `<index>-committed`.

mod answers;
#[cfg(feature = "aws-sigv4")]
mod aws;
mod collections;
mod config;
#[cfg(test)]
mod fake;
mod forward;
mod guarded;
mod identity;
mod index;
mod inspection;
mod parts;
mod requests;
mod secrets;
mod server;
mod transport;
pub mod watched;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use txn_store::{
    CollectionIdentity, CollectionInfo, CollectionSpec, Cursor, Filter, Key, Limits, Outcome, Page,
    Read, Store, StoreError, Write,
};

#[cfg(feature = "aws-sigv4")]
pub use aws::AwsSigner;
pub use config::{
    CredentialFile, CredentialProvider, EsAuth, EsConfig, RequestSigner, UnsignedRequest,
};
pub use forward::{ForwardError, ForwardedAnswer, ForwardedRequest};
pub use inspection::{Inspection, TemplateFault};
pub use secrecy::SecretString;
pub use server::Server;
pub use transport::AnswerMeter;

use guarded::Guarded;
use identity::identify::identify;
use parts::Parts;
use transport::{RequestClass, Transport};

/// The store of one Elasticsearch or OpenSearch cluster. Cheap to clone.
#[derive(Clone)]
pub struct EsStore {
    guarded: Arc<Guarded>,
}

impl fmt::Debug for EsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, nodes) = (self.guarded.server(), self.guarded.transport());
        f.debug_struct("EsStore").field("server", server).field("nodes", nodes).finish()
    }
}

impl EsStore {
    /// Connects to the cluster.
    ///
    /// Checks that a node answers, that the node accepts the login, and that the store supports its
    /// version.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`](txn_store::StoreErrorKind) if no node answers, `Denied` if
    /// the login is missing or wrong, `Misconfigured` if the server or the configuration is
    /// unsuitable.
    pub async fn connect(config: EsConfig) -> Result<Self, StoreError> {
        let transport = Transport::new(&config)?;
        let detected = server::detect(&transport).await;
        let server = detected.map_err(|error| transport.secrets().hide_in_error(error))?;
        Ok(Self { guarded: Arc::new(Guarded::new(Parts::new(transport, server, &config))) })
    }

    /// Returns the server that answered at the connect.
    #[must_use]
    pub fn server(&self) -> &Server {
        self.guarded.server()
    }

    /// Returns the number of avoided nodes, and that of all nodes.
    ///
    /// Requests avoid a node after failures, until a probe succeeds.
    #[must_use]
    pub fn nodes_left_out(&self) -> (usize, usize) {
        self.guarded.nodes_left_out()
    }

    /// Sends a `GET` request, and returns the answer as JSON text.
    ///
    /// The answer has at most 16 MiB.
    ///
    /// # Errors
    /// - [`StoreErrorKind::Unavailable`](txn_store::StoreErrorKind) if the server does not answer.
    /// - `Denied` if the account may not see the answer.
    /// - `Misconfigured` for a wrong path, and for a request that the server does not know.
    pub async fn inspect(&self, inspection: &Inspection<'_>) -> Result<String, StoreError> {
        self.guarded.call(|parts| parts.inspector.inspect(inspection)).await
    }

    /// Finds an index template that would spoil a new partition.
    ///
    /// `name` is that of a partition of the transaction table, and need not exist. The call applies
    /// the checks of [`Store::open_collection`] to the index as the server would make it. `None`
    /// also if the account may not read templates.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`](txn_store::StoreErrorKind) if the server does not answer.
    pub async fn template_fault(&self, name: &str) -> Result<Option<TemplateFault>, StoreError> {
        self.guarded.call(|parts| parts.inspector.template_fault(name)).await
    }

    /// Finds a template's ingest pipeline for a new index.
    ///
    /// The templates of the cluster give a new index this pipeline.
    ///
    /// `None` also if the account may not read templates.
    pub async fn template_pipeline(&self, name: &str) -> Option<String> {
        self.guarded.call(|parts| parts.inspector.template_pipeline(name)).await
    }

    /// Sends a request of another program once.
    ///
    /// The request has the login of the store.
    ///
    /// The caller decides which requests this call forwards. The engine does not see their writes.
    /// Redirects are not followed.
    ///
    /// # Errors
    /// [`ForwardError`] if there is no answer, or if the answer is too large.
    pub async fn forward(
        &self,
        request: ForwardedRequest,
    ) -> Result<ForwardedAnswer, ForwardError> {
        // Boxed, so that the HTTP client is compiled with this crate.
        Box::pin(self.guarded.call(|parts| forward::forward(&parts.transport, request))).await
    }
}

#[async_trait]
impl Store for EsStore {
    fn limits(&self) -> Limits {
        self.guarded.get(|parts| parts.limits)
    }

    fn request_timeout(&self) -> Duration {
        self.guarded.get(|parts| parts.transport.timeout(RequestClass::Write))
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.guarded.call(|parts| parts.reads.get_many(keys)).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.guarded.call(|parts| parts.reads.read_primary(keys)).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        self.guarded.call(|parts| parts.writes.write_many(writes)).await
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.guarded.call(|parts| parts.scans.refresh(collection)).await
    }

    async fn scan(
        &self,
        collection: &str,
        filter: &Filter,
        size: usize,
        from: Option<Cursor>,
    ) -> Result<Page, StoreError> {
        self.guarded.call(|parts| parts.scans.scan(collection, filter, size, from)).await
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        self.guarded.call(|parts| parts.opening.open_collection(spec)).await
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        self.guarded.call(|parts| identify(&parts.admin, name)).await
    }

    async fn drop_collection(&self, name: &str) -> Result<(), StoreError> {
        self.guarded.call(|parts| parts.indices.drop_index(name)).await
    }

    async fn add_alias(&self, alias: &str, collection: &str) -> Result<(), StoreError> {
        self.guarded.call(|parts| parts.changes.add_alias(alias, collection)).await
    }

    async fn block_writes(&self, collection: &str, blocked: bool) -> Result<(), StoreError> {
        self.guarded.call(|parts| parts.changes.block_writes(collection, blocked)).await
    }

    async fn list_collections(&self, prefix: &str) -> Result<Vec<Arc<str>>, StoreError> {
        self.guarded.call(|parts| parts.indices.list(prefix)).await
    }

    async fn release_collection(&self, collection: &str) -> Result<(), StoreError> {
        self.guarded.call(|parts| parts.changes.release_collection(collection)).await
    }

    async fn server_time(&self) -> Result<Option<Duration>, StoreError> {
        self.guarded.call(|parts| server::time(&parts.transport)).await
    }
}
