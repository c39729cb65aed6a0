//! The recorded state of a server, by which another process finds it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use super::credentials::Credentials;
use super::error::{Error, OnPath, Result};
use super::home::{remove, write_private};
use super::network::Network;
use super::node::Node;
use crate::servers::launching::health::Doctor;
use crate::servers::launching::process::{Process, java_processes_of};
use crate::servers::products::kind::ServerKind;

const FILE: &str = "state.json";

/// A server that was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) kind: ServerKind,
    pub(crate) cluster_name: String,
    /// The folder of this server and this file.
    pub(crate) folder: PathBuf,
    /// The home of the Java that runs the server.
    pub(crate) java: PathBuf,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ca_certificate: Option<PathBuf>,
    pub(crate) credentials: Option<Credentials>,
    /// The process that holds a private server.
    pub(crate) owner: Option<Process>,
    /// The network of nodes in namespaces.
    #[serde(default)]
    pub(crate) network: Option<Network>,
    /// The heap of each node in MiB, if not the usual one.
    #[serde(default)]
    pub(crate) heap: Option<u32>,
}

impl State {
    /// Returns the recorded state of a folder.
    ///
    /// `None` if the state cannot be read.
    pub(crate) fn load(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join(FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Records the state.
    pub(crate) fn save(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Other(format!("cannot write {FILE}: {error}")))?;
        write_private(&self.folder.join(FILE), &text)
    }

    /// Returns the folder in which all nodes keep snapshots.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.folder.join("snapshots")
    }

    /// Returns the address of a node for other nodes.
    pub(crate) fn address(&self, node: &Node) -> String {
        let index = self.nodes.iter().position(|other| other.name == node.name);
        match &self.network {
            Some(network) => network.address(index.unwrap_or_default()),
            None => "127.0.0.1".to_owned(),
        }
    }

    /// Returns the settings for the discovery of other nodes.
    ///
    /// `initial` is the name of the setting with the nodes that form a new cluster.
    pub(crate) fn discovery(&self, initial: &str) -> String {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let seed = |node: &Node| format!("\"{}:{}\"", self.address(node), node.transport_port);
        let seeds: Vec<String> = self.nodes.iter().map(seed).collect();
        format!("discovery.seed_hosts: [{}]\n{initial}: [{}]\n", seeds.join(", "), names.join(", "))
    }

    /// Returns the client for the nodes' health.
    pub(crate) fn doctor(&self) -> Result<Doctor> {
        Doctor::new(self.ca_certificate.as_deref(), self.credentials.as_ref())
    }

    /// Whether every node is alive and answers.
    pub(crate) fn is_well(&self) -> Result<bool> {
        if !self.nodes.iter().all(Node::is_active) {
            return Ok(false);
        }
        let doctor = self.doctor()?;
        let count = self.nodes.len();
        Ok(self.nodes.iter().all(|node| doctor.complaint(&node.url, count).is_none()))
    }
}

/// Ends the server of a folder, and removes its data.
///
/// Returns whether the server ran.
///
/// The logs stay.
pub(crate) fn take_down(folder: &Path, patiently: bool) -> Result<bool> {
    let state = State::load(folder);
    let nodes = state.as_ref().map(|state| state.nodes.as_slice()).unwrap_or_default();
    let mut was_running = false;
    for node in nodes {
        was_running |= node.is_alive();
        if patiently { node.shut_down() } else { node.kill() }?;
    }
    // Processes that were started and not recorded, as after an interruption.
    for stray in java_processes_of(folder) {
        was_running = true;
        stray.kill()?;
    }
    if let Some(network) = state.as_ref().and_then(|state| state.network.as_ref()) {
        network.remove()?;
    }
    for node in nodes {
        // Of a test whose process was killed. Without a mount the call fails.
        let _ = unmount(&node.data, UnmountFlags::DETACH);
        remove(&node.data)?;
    }
    remove(&folder.join("snapshots"))?;
    let file = folder.join(FILE);
    if file.exists() {
        fs::remove_file(&file).on("remove", &file)?;
    }
    Ok(was_running)
}
