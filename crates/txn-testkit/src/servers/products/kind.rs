//! The kinds of servers.

use std::fmt;
use std::str::FromStr;

use crate::servers::launching::java::Versions;

/// A server, or a cluster, that this module can start.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ServerKind {
    /// Elasticsearch 8, one node, security off.
    Elasticsearch,
    /// Elasticsearch 7, one node, security off.
    Elasticsearch7,
    /// Elasticsearch 9, one node, security off.
    Elasticsearch9,
    /// OpenSearch 3, one node, security off.
    OpenSearch,
    /// OpenSearch 2, one node, security off.
    OpenSearch2,
    /// Elasticsearch 8, three nodes, security off.
    Cluster,
    /// OpenSearch 3, three nodes, security off. Needs a JDK.
    ///
    /// Only private servers can be of this kind.
    OpenSearchCluster,
    /// Elasticsearch 8, three nodes that can be cut off. The nodes are in network namespaces. A cut
    /// separates nodes from each other.
    ///
    /// Needs root. Only private servers can be of this kind.
    Partitioned,
    /// OpenSearch 3, otherwise like [`ServerKind::Partitioned`]. Needs a JDK.
    PartitionedOpenSearch,
    /// Elasticsearch 8, one node, with TLS for HTTP and a superuser.
    ///
    /// Further users, roles and API keys cannot be created over HTTP. Elasticsearch keeps users,
    /// roles and keys in an index that needs analyzers, which the package lacks.
    Secured,
    /// OpenSearch 3 with its security plugin, one node, with TLS for HTTP and a superuser.
    ///
    /// Further users and roles are created over HTTP.
    SecuredOpenSearch,
}

impl ServerKind {
    /// All kinds of shared servers.
    pub const ALL: [Self; 8] = [
        Self::Elasticsearch,
        Self::Elasticsearch7,
        Self::Elasticsearch9,
        Self::OpenSearch,
        Self::OpenSearch2,
        Self::Cluster,
        Self::Secured,
        Self::SecuredOpenSearch,
    ];

    /// The kinds without security and cluster, one for each supported version.
    pub const VERSIONS: [Self; 5] = [
        Self::Elasticsearch,
        Self::Elasticsearch7,
        Self::Elasticsearch9,
        Self::OpenSearch,
        Self::OpenSearch2,
    ];

    /// Returns the name on the command line and in folders.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Elasticsearch => "elasticsearch",
            Self::Elasticsearch7 => "elasticsearch7",
            Self::Elasticsearch9 => "elasticsearch9",
            Self::OpenSearch => "opensearch",
            Self::OpenSearch2 => "opensearch2",
            Self::Cluster => "cluster",
            Self::OpenSearchCluster => "opensearch-cluster",
            Self::Partitioned => "partitioned",
            Self::PartitionedOpenSearch => "partitioned-opensearch",
            Self::Secured => "secured",
            Self::SecuredOpenSearch => "secured-opensearch",
        }
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn node_count(self) -> usize {
        let is_cluster = matches!(self, Self::Cluster | Self::OpenSearchCluster);
        if is_cluster || self.is_partitioned() { 3 } else { 1 }
    }

    /// Whether the nodes are in network namespaces.
    #[must_use]
    pub fn is_partitioned(self) -> bool {
        matches!(self, Self::Partitioned | Self::PartitionedOpenSearch)
    }

    /// Returns the suitable Java versions.
    #[must_use]
    pub fn java_versions(self) -> Versions {
        match self {
            // Both need the security manager, which Java 24 removed.
            Self::Elasticsearch7 | Self::OpenSearch2 => Versions { oldest: 17, newest: Some(23) },
            Self::Elasticsearch9
            | Self::OpenSearch
            | Self::OpenSearchCluster
            | Self::PartitionedOpenSearch
            | Self::SecuredOpenSearch => Versions { oldest: 21, newest: None },
            Self::Elasticsearch | Self::Cluster | Self::Partitioned | Self::Secured => {
                Versions { oldest: 17, newest: None }
            }
        }
    }

    /// Whether the server has users and TLS.
    pub(crate) fn is_secured(self) -> bool {
        matches!(self, Self::Secured | Self::SecuredOpenSearch)
    }

    /// Whether both kinds are a single node of one product without users.
    pub(crate) fn has_data_of(self, other: Self) -> bool {
        let is_elasticsearch =
            |kind: Self| matches!(kind.distribution(), Distribution::Elasticsearch(_));
        let both = [self, other];
        both.iter().all(|kind| Self::VERSIONS.contains(kind))
            && is_elasticsearch(self) == is_elasticsearch(other)
    }

    pub(crate) fn distribution(self) -> Distribution {
        match self {
            Self::Elasticsearch | Self::Cluster | Self::Partitioned | Self::Secured => {
                Distribution::Elasticsearch("8.19.21")
            }
            Self::Elasticsearch7 => Distribution::Elasticsearch("7.17.29"),
            Self::Elasticsearch9 => Distribution::Elasticsearch("9.5.0"),
            Self::OpenSearch | Self::OpenSearchCluster | Self::PartitionedOpenSearch => {
                Distribution::OpenSearch { version: "3.8.0", runner: "3.8.0.0", security: None }
            }
            Self::OpenSearch2 => {
                Distribution::OpenSearch { version: "2.19.6", runner: "2.19.1.0", security: None }
            }
            // Maven has the plugin for a few versions only.
            Self::SecuredOpenSearch => Distribution::OpenSearch {
                version: "3.4.0",
                runner: "3.4.0.0",
                security: Some("3.4.0.0"),
            },
        }
    }

    /// Returns the version that is downloaded, such as `8.19.21`.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.distribution().version()
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ServerKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no server `{name}`; there are: {names}")
        })
    }
}

/// A product in one version, as it is downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// Elastic's packaged distribution: a folder with `bin/elasticsearch`.
    Elasticsearch(&'static str),
    /// OpenSearch and a runner program: a folder of jars.
    OpenSearch {
        version: &'static str,
        /// The version of the runner. Not every version of OpenSearch has its own.
        runner: &'static str,
        /// The version of the security plugin. `None` leaves out the plugin.
        security: Option<&'static str>,
    },
}

impl Distribution {
    /// Returns the name of the product's folder.
    pub(crate) fn folder(self) -> String {
        match self {
            Self::Elasticsearch(version) => format!("elasticsearch-{version}"),
            Self::OpenSearch { version, .. } => format!("opensearch-{version}"),
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::Elasticsearch(version) | Self::OpenSearch { version, .. } => version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in ServerKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("mysql".parse::<ServerKind>().is_err());
    }
}
