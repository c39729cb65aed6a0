//! A server that is up.

use std::path::Path;

use super::credentials::Credentials;
use super::error::{Error, Result};
use super::home::{Home, remove};
use super::network::Network;
use super::node::Node;
use super::state::{State, take_down};
use crate::env;
use crate::servers::launching::java::find_java;
use crate::servers::launching::launch::{configure, start};
use crate::servers::launching::setup::Setup;
use crate::servers::products::kind::ServerKind;
use crate::servers::products::product::install;

/// A server that is up, either shared or private to its holder.
///
/// Dropping a private one kills and removes it.
#[derive(Debug)]
pub struct Running {
    home: Home,
    state: State,
    was_reused: bool,
}

impl Running {
    pub(crate) fn new(home: Home, state: State, was_reused: bool) -> Self {
        Self { home, state, was_reused }
    }

    /// Returns the kind of the server.
    #[must_use]
    pub fn kind(&self) -> ServerKind {
        self.state.kind
    }

    /// Returns the nodes, in the order of their names.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.state.nodes
    }

    /// Returns the first node's address, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        self.state.nodes[0].url()
    }

    /// Returns the addresses of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.state.nodes.iter().map(|node| node.url().to_owned()).collect()
    }

    /// Returns the certificate (PEM) of the server's authority, if it has TLS.
    #[must_use]
    pub fn ca_certificate(&self) -> Option<&Path> {
        self.state.ca_certificate.as_deref()
    }

    /// Returns the superuser, if the server has users.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.state.credentials.as_ref()
    }

    /// Returns the network of a server whose nodes are in namespaces.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.state.network.as_ref()
    }

    /// Whether the server was up before the call.
    #[must_use]
    pub fn was_reused(&self) -> bool {
        self.was_reused
    }

    /// Whether every node is alive and answers.
    ///
    /// # Errors
    /// If the certificate cannot be read.
    pub fn is_healthy(&self) -> Result<bool> {
        self.state.is_well()
    }

    /// Returns the variables of [`crate::env`](mod@crate::env) for this server.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let url = self.urls().join(",");
        match self.state.kind {
            ServerKind::Elasticsearch => vec![(env::ELASTICSEARCH_URL, url)],
            ServerKind::Elasticsearch7 => vec![(env::ELASTICSEARCH7_URL, url)],
            ServerKind::Elasticsearch9 => vec![(env::ELASTICSEARCH9_URL, url)],
            ServerKind::OpenSearch => vec![(env::OPENSEARCH_URL, url)],
            ServerKind::OpenSearch2 => vec![(env::OPENSEARCH2_URL, url)],
            ServerKind::Cluster => vec![(env::CLUSTER_URL, url)],
            // A private server has no variable.
            ServerKind::OpenSearchCluster
            | ServerKind::Partitioned
            | ServerKind::PartitionedOpenSearch => Vec::new(),
            ServerKind::Secured => self.access(url, env::SECURED_VARIABLES),
            ServerKind::SecuredOpenSearch => self.access(url, env::SECURED_OPENSEARCH_VARIABLES),
        }
    }

    /// Returns the values of the variables of a server with users and TLS.
    fn access(&self, url: String, names: [&'static str; 4]) -> Vec<(&'static str, String)> {
        let path = self.ca_certificate().map(|path| path.display().to_string());
        let (user, password) = match self.credentials() {
            Some(Credentials { username, password }) => {
                (Some(username.clone()), Some(password.expose().to_owned()))
            }
            None => (None, None),
        };
        let values = [Some(url), path, user, password];
        names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Restarts a node with its data and its ports.
    ///
    /// Waits until the node is healthy. A running node is shut down in order first. For a crash,
    /// call [`Node::kill`] before.
    ///
    /// # Errors
    /// If there is no such node, or it does not become healthy.
    pub fn restart_node(&mut self, index: usize) -> Result<()> {
        if index >= self.state.nodes.len() {
            return Err(Error::Other(format!(
                "there is no node {index}: {} has {} nodes, counted from 0",
                self.state.cluster_name,
                self.state.nodes.len()
            )));
        }
        self.restart_nodes(&[index])
    }

    /// Restarts all nodes with their data and ports.
    ///
    /// Waits until all nodes are healthy. Running nodes are shut down in order first.
    ///
    /// # Errors
    /// If a node does not become healthy.
    pub fn restart(&mut self) -> Result<()> {
        let all: Vec<usize> = (0..self.state.nodes.len()).collect();
        self.restart_nodes(&all)
    }

    /// Starts another version on the data and the ports of all nodes.
    ///
    /// Waits until the nodes are healthy. Running nodes are shut down in order first.
    ///
    /// # Errors
    /// If the version is of another product, lacks a suitable Java, or does not become healthy.
    pub fn upgrade(&mut self, kind: ServerKind) -> Result<()> {
        if !self.state.kind.has_data_of(kind) {
            return Err(Error::Other(format!("{kind} cannot use data of {}", self.state.kind)));
        }
        let _lock = self.home.lock(self.state.kind.name())?;
        for node in &self.state.nodes {
            node.shut_down()?;
        }
        let product = install(&self.home, kind.distribution())?;
        self.state.java = find_java(kind.java_versions())?;
        self.state.kind = kind;
        configure(&Setup { home: &self.home, product: &product, state: &self.state })?;
        let all: Vec<usize> = (0..self.state.nodes.len()).collect();
        start(&self.home, &product, &mut self.state, &all)
    }

    fn restart_nodes(&mut self, indices: &[usize]) -> Result<()> {
        let _lock = self.home.lock(self.state.kind.name())?;
        for &index in indices {
            self.state.nodes[index].shut_down()?;
        }
        let product = install(&self.home, self.state.kind.distribution())?;
        start(&self.home, &product, &mut self.state, indices)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.state.owner.is_none() {
            return;
        }
        let folder = &self.state.folder;
        let end = take_down(folder, false).and_then(|_| {
            if std::thread::panicking() {
                eprintln!("{}: its logs stay in {}", self.state.cluster_name, folder.display());
                return Ok(());
            }
            remove(folder)
        });
        if let Err(error) = end {
            eprintln!("{}: {error}", self.state.cluster_name);
        }
    }
}
