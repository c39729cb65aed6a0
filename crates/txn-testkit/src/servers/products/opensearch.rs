//! Configures and starts an OpenSearch node.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::servers::error::{OnPath, Result};
use crate::servers::home::create;
use crate::servers::launching::setup::Setup;
use crate::servers::network::IN_NAMESPACES;
use crate::servers::node::Node;
use crate::servers::products::java_options;
use crate::servers::products::kind::ServerKind;
use crate::servers::products::security_plugin;

/// A program that starts a member of a cluster.
///
/// The command of the runner starts a whole cluster in one process.
const MEMBER: &str = include_str!("Member.java");

fn member(node: &Node) -> PathBuf {
    node.folder.join("Member.java")
}

/// Writes the configuration of the node.
pub(crate) fn configure(setup: &Setup<'_>) -> Result<()> {
    let snapshots = setup.state.snapshots();
    create(&snapshots)?;
    setup.home.give(&snapshots)?;
    for node in &setup.state.nodes {
        create(&node.folder.join("logs"))?;
        create(&node.folder.join("tmp"))?;
        // The runner chooses the names of the node's folders.
        let config = node.folder.join("node_1/config");
        create(&config)?;
        let path = config.join("opensearch.yml");
        // The runner's default ports start at 9300.
        let mut settings = format!(
            "network.host: {}\n\
             transport.port: {}\n\
             path.repo: [\"{}\"]\n\
             cluster.routing.allocation.disk.threshold_enabled: false\n",
            setup.state.address(node),
            node.transport_port,
            snapshots.display(),
        );
        if setup.state.nodes.len() > 1 {
            settings += &setup.state.discovery("cluster.initial_cluster_manager_nodes");
            let path = member(node);
            fs::write(&path, MEMBER).on("write", &path)?;
        }
        if setup.state.network.is_some() {
            settings += IN_NAMESPACES;
        }
        if setup.state.kind.is_secured() {
            settings += &security_plugin::configure(&config)?;
        }
        fs::write(&path, settings).on("write", &path)?;
        setup.home.give(&node.folder)?;
    }
    Ok(())
}

/// Returns the command that starts the node. The process becomes the server.
pub(crate) fn start_command(setup: &Setup<'_>, node: &Node) -> Command {
    let state = setup.state;
    let mut command = setup.command(state.java.join("bin/java").as_ref(), node, true);
    command.args(java_options(state));
    if state.kind != ServerKind::OpenSearch2 {
        command.args(["--add-modules", "jdk.incubator.vector"]);
        command.arg("--enable-native-access=ALL-UNNAMED");
    }
    command
        .arg(format!("-Djava.io.tmpdir={}", node.folder.join("tmp").display()))
        .arg("-cp")
        .arg(class_path(setup));
    if state.nodes.len() > 1 {
        command.arg(member(node)).arg(&node.name);
    } else {
        command.arg("org.codelibs.opensearch.runner.OpenSearchRunner");
    }
    command
        .arg("-basePath")
        .arg(&node.folder)
        .args(["-numOfNode", "1", "-clusterName", &state.cluster_name])
        // The runner adds the number of the node, which is 1.
        .args(["-baseHttpPort", &(node.http_port - 1).to_string()]);
    if state.kind.is_secured() {
        command.args(["-pluginTypes", "org.opensearch.security.OpenSearchSecurityPlugin"]);
    }
    command
}

/// Returns the folders of jars.
fn class_path(setup: &Setup<'_>) -> String {
    let mut path = setup.product.join("lib/*").display().to_string();
    if setup.state.kind.is_secured() {
        path += ":";
        path += &setup.product.join("security/*").display().to_string();
    }
    path
}
