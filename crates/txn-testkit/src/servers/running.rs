//! A server that is up.

use std::path::Path;

use super::credentials::Credentials;
use super::error::{Error, Result};
use super::home::{Home, remove};
use super::kind::ServerKind;
use super::launch::start;
use super::node::Node;
use super::product::install;
use super::state::{State, take_down};
use crate::env;

/// A server that is up, shared by everybody on this machine or private to its holder.
///
/// A private one is killed and removed when this is dropped.
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

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ServerKind {
        self.state.kind
    }

    /// Its nodes, in the order of their names.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.state.nodes
    }

    /// The address of the first node, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        self.state.nodes[0].url()
    }

    /// The addresses of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.state.nodes.iter().map(|node| node.url().to_owned()).collect()
    }

    /// The certificate (PEM) of the authority that signed the server's, if it has TLS.
    #[must_use]
    pub fn ca_certificate(&self) -> Option<&Path> {
        self.state.ca_certificate.as_deref()
    }

    /// The superuser, if the server has users.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.state.credentials.as_ref()
    }

    /// Whether it was up before it was asked for.
    #[must_use]
    pub fn was_reused(&self) -> bool {
        self.was_reused
    }

    /// Whether every node is there and answers.
    ///
    /// # Errors
    /// If the certificate cannot be read.
    pub fn is_healthy(&self) -> Result<bool> {
        self.state.is_well()
    }

    /// The variables that [`crate::env`](mod@crate::env) reads, with their values for this server.
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
            ServerKind::Secured => {
                let mut variables = vec![(env::SECURED_URL, url)];
                if let Some(path) = self.ca_certificate() {
                    variables.push((env::SECURED_CA, path.display().to_string()));
                }
                if let Some(Credentials { username, password }) = self.credentials() {
                    variables.push((env::SECURED_USER, username.clone()));
                    variables.push((env::SECURED_PASSWORD, password.expose().to_owned()));
                }
                variables
            }
        }
    }

    /// Starts a node again with its data and its ports, and waits until it is healthy. If it still
    /// runs it is shut down in order first; [`Node::kill`] it before for a crash.
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

    /// Starts all nodes again with their data and ports, and waits until they are healthy. Those
    /// that still run are shut down in order first.
    ///
    /// # Errors
    /// If one does not become healthy.
    pub fn restart(&mut self) -> Result<()> {
        let all: Vec<usize> = (0..self.state.nodes.len()).collect();
        self.restart_nodes(&all)
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
