//! Nodes and clients in network namespaces, with cuts between them.
//!
//! A bridge connects the namespaces.
//!
//! Each node has a namespace of its own. The bridge is in a further namespace, so its filter rules
//! touch no other traffic of the machine. Clients are processes of the machine itself. Each client
//! has an interface and a subnet of its own, so a client can be cut off, too.
//!
//! ```text
//!   namespace of node 1       namespace of the bridge         machine
//!   eth0 198.18.0.1     ───── node-1 ┐         ┌ client-1 ─── txnp0-client-1 198.18.1.254
//!        198.18.1.1           node-2 ┼ bridge ─┤ client-2 ─── txnp0-client-2 198.18.2.254
//!        198.18.2.1 …         node-3 ┘         └ observer ─── txnp0-observer 198.18.3.254
//! ```

mod cuts;
mod layout;
pub(crate) mod open_files;
mod speed;

use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::servers::error::{Error, Result};
use crate::servers::launching::command::{run, run_with_input};

pub use cuts::{Link, Loss, Port};
pub use speed::Rate;

/// The number of networks that one machine can have.
///
/// The name of an interface has at most 15 characters, so a number has at most two digits.
const MOST_NETWORKS: u8 = 16;

/// The settings of a node in a namespace.
///
/// Elasticsearch and OpenSearch have the same settings.
///
/// Clients come from several subnets. The checks find a missing node after 2 to 4 s instead of
/// 30 s, so a short fault already has an election. A new master waits for the missing node for 5 s
/// instead of 30 s. Without `mmap` a check of the machine passes.
pub(crate) const IN_NAMESPACES: &str = "\
http.bind_host: 0.0.0.0
node.store.allow_mmap: false
cluster.fault_detection.follower_check.interval: 500ms
cluster.fault_detection.follower_check.timeout: 1s
cluster.fault_detection.follower_check.retry_count: 2
cluster.fault_detection.leader_check.interval: 500ms
cluster.fault_detection.leader_check.timeout: 1s
cluster.fault_detection.leader_check.retry_count: 2
cluster.publish.timeout: 5s
cluster.follower_lag.timeout: 10s
";

/// The network of the nodes of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The number of the network on this machine. All names and addresses of the network have this
    /// number.
    number: u8,
    nodes: usize,
}

/// Checks that this process can create network namespaces.
///
/// # Errors
/// If the process is not root, or a program is missing. The message names the remedy.
pub fn check_namespaces() -> Result<()> {
    if !geteuid().is_root() {
        return Err(Error::Missing {
            what: "the right to create network namespaces".to_owned(),
            remedy: "run the command as root".to_owned(),
        });
    }
    for (program, version, package) in [
        ("ip", "-V", "iproute2"),
        ("tc", "-V", "iproute2"),
        ("nft", "-v", "nftables"),
        ("nsenter", "-V", "util-linux"),
        ("prlimit", "-V", "util-linux"),
    ] {
        run(Command::new(program).arg(version)).map_err(|_| Error::Missing {
            what: format!("`{program}`"),
            remedy: format!("install the package {package}"),
        })?;
    }
    Ok(())
}

impl Network {
    /// Chooses a free number for a network.
    ///
    /// No recorded network has the number, and no running process uses it.
    pub(crate) fn choose(nodes: usize, taken: &[u8]) -> Result<Self> {
        (0..MOST_NETWORKS)
            .filter(|number| !taken.contains(number))
            .map(|number| Self { number, nodes })
            .find(|network| !network.is_in_use())
            .ok_or_else(|| Error::Other(format!("{MOST_NETWORKS} networks are in use")))
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Whether a process runs in one of the namespaces.
    fn is_in_use(&self) -> bool {
        let has_processes = |namespace: &String| {
            let found = run(Command::new("ip").args(["netns", "pids", namespace]));
            found.is_ok_and(|pids| !pids.trim().is_empty())
        };
        self.namespaces().iter().any(has_processes)
    }

    /// Creates the namespaces and their links. Leftovers of the same number are removed first.
    pub(crate) fn create(&self) -> Result<()> {
        self.remove()?;
        self.creation().iter().try_for_each(|command| execute(command))
    }

    /// Removes everything that exists of this network.
    pub(crate) fn remove(&self) -> Result<()> {
        for interface in self.interfaces() {
            if Path::new("/sys/class/net").join(&interface).exists() {
                execute(&format!("ip link del {interface}"))?;
            }
        }
        for namespace in self.namespaces() {
            if namespace_file(&namespace).exists() {
                execute(&format!("ip netns del {namespace}"))?;
            }
        }
        Ok(())
    }

    /// Drops all packets on these links, and on no others.
    ///
    /// Open connections stay open, and nothing arrives.
    ///
    /// # Errors
    /// If `nft` fails.
    pub fn cut(&self, links: &[Link]) -> Result<()> {
        self.lose(links, Loss::All)
    }

    /// Lets these links lose packets, and ends all cuts.
    ///
    /// # Errors
    /// If `nft` fails.
    pub fn lose(&self, links: &[Link], loss: Loss) -> Result<()> {
        let mut nft = Command::new("ip");
        nft.args(["netns", "exec", &self.bridge_namespace(), "nft", "-f", "-"]);
        run_with_input(&mut nft, &cuts::rules(links, loss)).map(drop)
    }

    /// Ends all cuts.
    ///
    /// # Errors
    /// If `nft` fails.
    pub fn heal(&self) -> Result<()> {
        self.cut(&[])
    }

    /// Slows down everything that a node sends and receives.
    ///
    /// # Errors
    /// If `tc` fails.
    pub fn slow(&self, node: usize, rate: Rate) -> Result<()> {
        self.slowing(node, rate).iter().try_for_each(|command| execute(command))
    }

    /// Returns a slow node to full speed.
    ///
    /// # Errors
    /// If `tc` fails, for example because the node is not slow.
    pub fn unslow(&self, node: usize) -> Result<()> {
        self.unslowing(node).iter().try_for_each(|command| execute(command))
    }
}

fn namespace_file(namespace: &str) -> std::path::PathBuf {
    Path::new("/run/netns").join(namespace)
}

/// Runs a command whose arguments have no blanks.
fn execute(command: &str) -> Result<()> {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    run(Command::new(program).args(words)).map(drop)
}
