//! Configures and starts Elasticsearch nodes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::credentials::Credentials;
use crate::servers::error::{OnPath, Result};
use crate::servers::home::{create, write_private};
use crate::servers::launching::command::{run, run_with_input};
use crate::servers::launching::setup::Setup;
use crate::servers::network::IN_NAMESPACES;
use crate::servers::node::Node;
use crate::servers::products::java_options;
use crate::servers::products::kind::{Distribution, ServerKind};
use crate::servers::products::roles;
use crate::servers::products::tls::Certificates;
use crate::servers::state::State;

/// Writes the configuration of every node.
///
/// A node finds all files in its own folder, so a restart is the same command again.
pub(crate) fn configure(setup: &Setup<'_>) -> Result<()> {
    let state = setup.state;
    let certificates =
        if state.kind == ServerKind::Secured { Some(Certificates::make()?) } else { None };
    create(&state.snapshots())?;
    setup.home.give(&state.snapshots())?;
    for node in &state.nodes {
        let config = node.folder.join("config");
        for folder in ["config", "data", "logs", "tmp"] {
            create(&node.folder.join(folder))?;
        }
        copy_defaults(&setup.product.join("config"), &config)?;
        let mut settings = settings(state, node);
        if let Some(certificates) = &certificates {
            settings += &secure(&config, certificates)?;
        }
        if let Some(superuser) = &state.credentials {
            roles::write(&config, superuser)?;
        }
        let path = config.join("elasticsearch.yml");
        fs::write(&path, settings).on("write", &path)?;
        setup.home.give(&node.folder)?;
        if let Some(credentials) = &state.credentials {
            set_password(setup, node, credentials)?;
        }
    }
    Ok(())
}

/// Returns the command that starts a node.
///
/// Version 8 has a launcher, a second Java process that stays unless the server is a daemon.
/// Version 7 becomes the server itself. The file `pid` holds the process id of the server.
pub(crate) fn start_command(setup: &Setup<'_>, node: &Node) -> Command {
    let mut command = tool(setup, node, "elasticsearch", true);
    if becomes_daemon(setup.state.kind) {
        command.arg("-d");
    }
    let options = java_options(setup.state).join(" ");
    command.arg("-p").arg(pid_file(node)).env("ES_JAVA_OPTS", options);
    command
}

/// Whether the start command of this server ends after the start.
pub(crate) fn becomes_daemon(kind: ServerKind) -> bool {
    matches!(kind.distribution(), Distribution::Elasticsearch(_))
        && kind != ServerKind::Elasticsearch7
}

/// Returns the file for the process id of a node.
pub(crate) fn pid_file(node: &Node) -> PathBuf {
    node.folder.join("pid")
}

/// Copies the product's configuration without two kinds of output.
///
/// The log of garbage collections and the dumps are left out.
///
/// Both would go to folders outside of the node's folder.
fn copy_defaults(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).on("read", from)? {
        let path = entry.on("read", from)?.path();
        let Some(name) = path.file_name().filter(|_| path.is_file()) else { continue };
        let mut text = fs::read_to_string(&path).on("read", &path)?;
        if name == "jvm.options" {
            let unwanted = ["gc.log", "ErrorFile", "HeapDump"];
            text = text
                .lines()
                .filter(|line| !unwanted.iter().any(|word| line.contains(word)))
                .map(|line| format!("{line}\n"))
                .collect();
        }
        let target = to.join(name);
        fs::write(&target, text).on("write", &target)?;
    }
    Ok(())
}

fn settings(state: &State, node: &Node) -> String {
    let folder = node.folder.display();
    let mut text = format!(
        "cluster.name: {}\n\
         node.name: {}\n\
         path.data: \"{folder}/data\"\n\
         path.logs: \"{folder}/logs\"\n\
         path.repo: [\"{}\"]\n\
         network.host: {}\n\
         http.port: {}\n\
         transport.port: {}\n\
         cluster.routing.allocation.disk.threshold_enabled: false\n\
         xpack.ml.enabled: false\n",
        state.cluster_name,
        node.name,
        state.snapshots().display(),
        state.address(node),
        node.http_port,
        node.transport_port,
    );
    if state.nodes.len() == 1 {
        text += "discovery.type: single-node\n";
    } else {
        text += &state.discovery("cluster.initial_master_nodes");
    }
    if state.network.is_some() {
        text += IN_NAMESPACES;
    }
    let _ = writeln!(text, "xpack.security.enabled: {}", state.kind == ServerKind::Secured);
    text
}

/// Writes the certificates, and returns the settings with their paths.
fn secure(config: &Path, certificates: &Certificates) -> Result<String> {
    let files = [
        ("ca.crt", &certificates.authority),
        ("http.crt", &certificates.server),
        ("http.key", &certificates.server_key),
    ];
    for (name, pem) in files {
        write_private(&config.join(name), pem)?;
    }
    Ok("xpack.security.http.ssl.enabled: true\n\
        xpack.security.http.ssl.certificate: http.crt\n\
        xpack.security.http.ssl.key: http.key\n\
        xpack.security.http.ssl.certificate_authorities: [ca.crt]\n\
        xpack.security.transport.ssl.enabled: false\n\
        xpack.license.self_generated.type: trial\n"
        .to_owned())
}

/// Puts the superuser's first password into the node's keystore.
fn set_password(setup: &Setup<'_>, node: &Node, credentials: &Credentials) -> Result<()> {
    let keystore = || tool(setup, node, "elasticsearch-keystore", false);
    run(keystore().arg("create"))?;
    run_with_input(
        keystore().args(["add", "--stdin", "bootstrap.password"]),
        credentials.password.expose(),
    )?;
    Ok(())
}

fn tool(setup: &Setup<'_>, node: &Node, name: &str, detached: bool) -> Command {
    let program = setup.product.join("bin").join(name);
    let mut command = setup.command(program.as_ref(), node, detached);
    let tmp = node.folder.join("tmp");
    command
        .env("ES_JAVA_HOME", &setup.state.java)
        .env("ES_PATH_CONF", node.folder.join("config"))
        // The launcher ignores `ES_TMPDIR`.
        .env("CLI_JAVA_OPTS", format!("-Djava.io.tmpdir={}", tmp.display()))
        .env("ES_TMPDIR", tmp);
    command
}
