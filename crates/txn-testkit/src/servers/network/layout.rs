//! The names, addresses and commands of a network.

use std::path::Path;
use std::process::Command;

use super::cuts::Port;
use super::{Network, namespace_file, open_files};
use crate::servers::launching::account::Account;

/// The clients that can be cut off.
const CLIENTS: usize = 2;

/// The port of the observer, which no cut concerns.
const OBSERVER: &str = "observer";

impl Network {
    /// Returns the machine's port names: the clients and the observer.
    fn client_ports() -> impl Iterator<Item = String> {
        (0..CLIENTS).map(|client| Port::Client(client).to_string()).chain([OBSERVER.to_owned()])
    }

    fn node_ports(&self) -> impl Iterator<Item = String> {
        (0..self.nodes).map(|node| Port::Node(node).to_string())
    }

    /// Returns a name of this machine. The prefix keeps it apart from all names of other programs.
    fn named(&self, what: impl std::fmt::Display) -> String {
        format!("txnp{}-{what}", self.number)
    }

    pub(super) fn bridge_namespace(&self) -> String {
        self.named("bridge")
    }

    pub(super) fn namespaces(&self) -> Vec<String> {
        let nodes = self.node_ports().map(|port| self.named(port));
        nodes.chain([self.bridge_namespace()]).collect()
    }

    /// Returns the interfaces of the machine itself.
    pub(super) fn interfaces(&self) -> Vec<String> {
        Self::client_ports().map(|port| self.named(port)).collect()
    }

    /// Returns the first three bytes of a subnet.
    ///
    /// Subnet 0 is that of the nodes. Each client has one of the next subnets.
    ///
    /// The range 198.18.0.0/15 is reserved for tests of networks (RFC 2544).
    fn subnet(&self, number: usize) -> String {
        let per_network = CLIENTS + 2;
        format!("198.18.{}", usize::from(self.number) * per_network + number)
    }

    /// Returns the address of a node for the other nodes.
    pub(crate) fn address(&self, node: usize) -> String {
        format!("{}.{}", self.subnet(0), node + 1)
    }

    /// Returns the address of a node for the observer.
    ///
    /// No cut concerns the traffic of the observer.
    pub(crate) fn observer_address(&self, node: usize) -> String {
        format!("{}.{}", self.subnet(CLIENTS + 1), node + 1)
    }

    /// Returns the ports of all clients.
    #[must_use]
    pub fn clients(&self) -> Vec<Port> {
        (0..CLIENTS).map(Port::Client).collect()
    }

    /// Returns the addresses of all nodes for one client, `http://198.18.…:9200`.
    #[must_use]
    pub fn client_urls(&self, client: usize) -> Vec<String> {
        let subnet = self.subnet(client + 1);
        (1..=self.nodes).map(|node| format!("http://{subnet}.{node}:{}", Self::HTTP_PORT)).collect()
    }

    /// The HTTP port of each node, free in each new namespace.
    pub(crate) const HTTP_PORT: u16 = 9_200;
    /// The port for other nodes.
    pub(crate) const TRANSPORT_PORT: u16 = 9_300;

    /// Returns a command that runs programs in a node's namespace.
    ///
    /// The further arguments of the command are the program.
    ///
    /// Only root may enter a namespace, so the account changes afterwards.
    pub(crate) fn command(&self, folder: &Path, node: &str, account: Option<&Account>) -> Command {
        let mut command = open_files::command(folder);
        command
            .arg("nsenter")
            .arg(format!("--net={}", namespace_file(&self.named(node)).display()));
        if let Some(account) = account {
            command.args(account.options_of_nsenter());
        }
        command.arg("--");
        command
    }

    /// Returns the commands that create the network.
    pub(super) fn creation(&self) -> Vec<String> {
        let bridge = self.bridge_namespace();
        let mut commands = vec![
            format!("ip netns add {bridge}"),
            format!("ip -n {bridge} link add bridge type bridge"),
            format!("ip -n {bridge} link set bridge up"),
        ];
        for (index, port) in self.node_ports().enumerate() {
            let namespace = self.named(&port);
            commands.push(format!("ip netns add {namespace}"));
            commands.push(format!(
                "ip -n {bridge} link add {port} type veth peer name eth0 netns {namespace}"
            ));
            commands.push(format!("ip -n {bridge} link set {port} master bridge up"));
            for subnet in 0..CLIENTS + 2 {
                let address = format!("{}.{}/24", self.subnet(subnet), index + 1);
                commands.push(format!("ip -n {namespace} addr add {address} dev eth0"));
            }
            commands.push(format!("ip -n {namespace} link set eth0 up"));
            commands.push(format!("ip -n {namespace} link set lo up"));
        }
        for (index, port) in Self::client_ports().enumerate() {
            let interface = self.named(&port);
            let address = format!("{}.254/24", self.subnet(index + 1));
            commands.extend([
                format!("ip link add {interface} type veth peer name {port} netns {bridge}"),
                format!("ip -n {bridge} link set {port} master bridge up"),
                format!("ip addr add {address} dev {interface}"),
                format!("ip link set {interface} up"),
            ]);
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> Network {
        Network { number, nodes: 3 }
    }

    #[test]
    fn each_name_has_the_prefix_and_fits() {
        let largest = network(super::super::MOST_NETWORKS - 1);
        for interface in largest.interfaces() {
            assert!(interface.starts_with("txnp15-") && interface.len() <= 15, "{interface}");
        }
        assert_eq!(largest.namespaces().len(), 4);
        assert!(largest.namespaces().iter().all(|name| name.starts_with("txnp15-")));
    }

    #[test]
    fn subnets_of_two_networks_differ() {
        let (one, two) = (network(0), network(1));
        assert_eq!(one.address(2), "198.18.0.3");
        assert_eq!(one.client_urls(1)[0], "http://198.18.2.1:9200");
        assert_eq!(one.observer_address(0), "198.18.3.1");
        assert_eq!(two.address(0), "198.18.4.1");
        assert_eq!(network(15).observer_address(0), "198.18.63.1");
    }

    #[test]
    fn creation_links_each_node_and_client() {
        let commands = network(0).creation();
        for wanted in [
            "ip -n txnp0-bridge link add node-2 type veth peer name eth0 netns txnp0-node-2",
            "ip -n txnp0-bridge link set node-2 master bridge up",
            "ip -n txnp0-node-2 addr add 198.18.3.2/24 dev eth0",
            "ip link add txnp0-client-1 type veth peer name client-1 netns txnp0-bridge",
            "ip addr add 198.18.1.254/24 dev txnp0-client-1",
            "ip link set txnp0-observer up",
        ] {
            assert!(commands.iter().any(|command| command == wanted), "{wanted}: {commands:#?}");
        }
    }

    #[test]
    fn node_runs_in_its_namespace() {
        let command = network(3).command(Path::new("/nowhere"), "node-1", None);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert!(words.ends_with(&[
            "nsenter".into(),
            "--net=/run/netns/txnp3-node-1".into(),
            "--".into()
        ]));
    }
}
