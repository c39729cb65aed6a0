//! `cargo xtask torture`.

use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use txn_testkit::servers::ServerKind;

use crate::cargo::{cargo, root, target};
use crate::servers::Borrowed;
use crate::{Failure, prerequisites};

/// The target of the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// Simulated runs, with faults by seed.
    Simulation,
    /// One Elasticsearch 8 behind a proxy.
    Elasticsearch,
    /// One Elasticsearch 7 behind a proxy.
    Elasticsearch7,
    /// One Elasticsearch 9 behind a proxy.
    Elasticsearch9,
    /// One OpenSearch 3 behind a proxy.
    Opensearch,
    /// One OpenSearch 2 behind a proxy.
    Opensearch2,
    /// Three nodes of Elasticsearch.
    Cluster,
    /// Three nodes of Elasticsearch 8 that are cut off from each other. Needs root.
    Partitions,
    /// Three nodes of OpenSearch 3 that are cut off from each other. Needs root.
    PartitionsOpensearch,
    /// One Elasticsearch 8 on a disk that loses its power. Needs root.
    PowerLoss,
    /// One OpenSearch 3 on a disk that loses its power. Needs root.
    PowerLossOpensearch,
    /// Three nodes of Elasticsearch 8, whose disks lose their power at once. Needs root.
    PowerLossCluster,
    /// One Elasticsearch 7 that becomes 8, and then 9.
    Upgrade,
    /// One OpenSearch 2 that becomes 3.
    UpgradeOpensearch,
    /// One Elasticsearch 8 with a small heap, under 1,000 clients.
    Overload,
    /// One OpenSearch 3 with a small heap, under 1,000 clients.
    OverloadOpensearch,
    /// Three nodes of Elasticsearch 8, with the jobs of administrators.
    Life,
    /// Three nodes of OpenSearch 3, with the jobs of administrators.
    LifeOpensearch,
}

impl Target {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the server that has to be up.
    ///
    /// The load starts a cluster, nodes on lossy disks and nodes with a small heap itself, because
    /// it kills or changes them.
    fn server(self) -> Option<ServerKind> {
        match self {
            Self::Elasticsearch => Some(ServerKind::Elasticsearch),
            Self::Elasticsearch7 => Some(ServerKind::Elasticsearch7),
            Self::Elasticsearch9 => Some(ServerKind::Elasticsearch9),
            Self::Opensearch => Some(ServerKind::OpenSearch),
            Self::Opensearch2 => Some(ServerKind::OpenSearch2),
            Self::Simulation
            | Self::Cluster
            | Self::Partitions
            | Self::PartitionsOpensearch
            | Self::PowerLoss
            | Self::PowerLossOpensearch
            | Self::PowerLossCluster
            | Self::Upgrade
            | Self::UpgradeOpensearch
            | Self::Overload
            | Self::OverloadOpensearch
            | Self::Life
            | Self::LifeOpensearch => None,
        }
    }

    /// Returns the kinds of the servers that the load needs.
    fn kinds(self) -> Vec<ServerKind> {
        match self {
            Self::Partitions => vec![ServerKind::Partitioned],
            Self::PartitionsOpensearch => vec![ServerKind::PartitionedOpenSearch],
            Self::PowerLoss => vec![ServerKind::Elasticsearch],
            Self::PowerLossOpensearch => vec![ServerKind::OpenSearch],
            Self::Upgrade => vec![
                ServerKind::Elasticsearch7,
                ServerKind::Elasticsearch,
                ServerKind::Elasticsearch9,
            ],
            Self::Overload => vec![ServerKind::Elasticsearch],
            Self::OverloadOpensearch => vec![ServerKind::OpenSearch],
            Self::LifeOpensearch => vec![ServerKind::OpenSearchCluster],
            Self::UpgradeOpensearch => vec![ServerKind::OpenSearch2, ServerKind::OpenSearch],
            _ => vec![self.server().unwrap_or(ServerKind::Cluster)],
        }
    }
}

/// The system on the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    /// Requests, with killed processors.
    Requests,
    /// Locks, with killed holders.
    Locks,
    /// The outbox, with killed processors.
    Outbox,
    /// The gateway, which is killed.
    Gateway,
    /// The gateway, with more connections and requests than it can serve.
    GatewayOverload,
}

/// A further version of the workers of a system.
#[derive(Debug)]
pub(crate) struct OtherVersion {
    /// The commit of this version.
    pub(crate) commit: String,
    /// Whether the versions run in turn.
    pub(crate) in_turn: bool,
}

/// Builds the load of a commit of this repository.
///
/// Returns the path of the program.
///
/// The sources are a copy below the folder of builds. A program with both versions would need a git
/// address in a manifest, and this repository has no address yet.
fn build_commit(commit: &str) -> Result<PathBuf, Failure> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["rev-parse", "--verify", "--end-of-options"]);
    let found = git.arg(format!("{commit}^{{commit}}")).output()?;
    if !found.status.success() {
        return Err(format!("{commit} is no commit of this repository").into());
    }
    // A name such as `main~50` may be another commit later.
    let id = String::from_utf8(found.stdout)?.trim().to_owned();
    let folder = target().join("xtask/commits").join(&id);
    let (sources, builds) = (folder.join("sources"), folder.join("builds"));
    std::fs::create_dir_all(&sources)?;
    let archive = folder.join("sources.tar");
    let mut git = Command::new("git");
    git.current_dir(root()).args(["archive", "--output"]).arg(&archive).arg(&id);
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(&sources);
    let mut build = cargo("build --release -q -p txn-torture");
    build.current_dir(&sources).env("CARGO_TARGET_DIR", &builds);
    for mut step in [git, tar, build] {
        let status = step.status()?;
        if !status.success() {
            return Err(format!("{step:?}: {status}").into());
        }
    }
    Ok(builds.join("release/txn-torture"))
}

/// Runs the load to its end.
pub(crate) fn run(
    target: Target,
    system: Option<System>,
    other: Option<&OtherVersion>,
    seconds: u64,
    faults: &[String],
    rest: &[String],
) -> Result<(), Failure> {
    let mut command = match target {
        Target::Simulation => {
            if !faults.is_empty() {
                return Err("the seeds of the simulation choose the faults".into());
            }
            if system.is_some() {
                return Err("systems are tortured on one server".into());
            }
            let mut command = cargo("run --release -q -p txn-simulation --");
            command.arg("--seconds").arg(seconds.to_string()).args(rest);
            command
        }
        _ => {
            prerequisites::for_servers(&target.kinds())?;
            let mut command = cargo("run --release -q -p txn-torture --");
            command.arg("--seconds").arg(seconds.to_string()).arg("--target").arg(target.name());
            if let Some(system) = system.and_then(|system| system.to_possible_value()) {
                command.arg("--system").arg(system.get_name());
            }
            if let Some(OtherVersion { commit, in_turn }) = other {
                command.arg("--other").arg(build_commit(commit)?);
                command.args(in_turn.then_some("--in-turn"));
            }
            if !faults.is_empty() {
                command.arg("--faults").arg(faults.join(","));
            }
            command.args(rest);
            command
        }
    };
    let kinds: Vec<ServerKind> = target.server().into_iter().collect();
    let servers = Borrowed::up(&kinds)?;
    let status = command.envs(servers.variables().iter().cloned()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", target.name()).into()) }
}
