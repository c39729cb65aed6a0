//! The server that cases run on.

use txn_testkit::env;
use txn_testkit::servers::ServerKind;

/// A server with one node, of one version.
#[derive(Clone, Debug)]
pub struct Server {
    /// The product and its version.
    pub kind: ServerKind,
    /// The address, without a slash at the end.
    pub url: String,
}

impl Server {
    /// Returns the server of a version that the environment names.
    ///
    /// # Panics
    /// If its variable is not set, or if the kind is not in [`ServerKind::VERSIONS`].
    #[must_use]
    pub fn of(kind: ServerKind) -> Self {
        let url = match kind {
            ServerKind::Elasticsearch7 => env::elasticsearch7_url(),
            ServerKind::Elasticsearch => env::elasticsearch_url(),
            ServerKind::Elasticsearch9 => env::elasticsearch9_url(),
            ServerKind::OpenSearch2 => env::opensearch2_url(),
            ServerKind::OpenSearch => env::opensearch_url(),
            other => panic!("no cases run on {other}"),
        };
        Self { kind, url }
    }

    /// Whether the server has `_update_by_query` and scripts.
    ///
    /// OpenSearch has both. The packaged Elasticsearch has neither.
    #[must_use]
    pub fn has_by_query(&self) -> bool {
        matches!(self.kind, ServerKind::OpenSearch | ServerKind::OpenSearch2)
    }
}
