//! Calls of cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Failure;

/// Returns a call of cargo in the workspace's root.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments.split_whitespace());
    forget_xtask(&mut command);
    command
}

/// Removes the variables that cargo sets for xtask itself.
///
/// Some build scripts depend on these variables. With them, each call of cargo from xtask would
/// rebuild `ring` and all packages above it. The next call from a shell would rebuild them again.
pub(crate) fn forget_xtask(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if is_about_package(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
}

fn is_about_package(variable: &str) -> bool {
    ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|prefix| variable.starts_with(prefix))
}

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns the folder of builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |path| root().join(path))
}

/// The test target that starts and crashes its own servers.
const SERVERS_THEMSELVES: &str = "live";

/// The servers that a test target needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// No servers, or its own.
    Nothing,
    /// One server of each version (feature `live`).
    Servers,
    /// Three nodes (feature `cluster`).
    Cluster,
}

/// The test targets of the workspace that need servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestTargets {
    live: Vec<String>,
    cluster: Vec<String>,
}

impl TestTargets {
    /// Reads the targets from cargo's metadata.
    pub(crate) fn find() -> Result<Self, Failure> {
        let output = cargo("metadata --no-deps --format-version 1").output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(Self::of(&serde_json::from_slice(&output.stdout)?))
    }

    /// Returns the targets that need one server of each version.
    pub(crate) fn live(&self) -> &[String] {
        &self.live
    }

    /// Returns the needs of a target.
    pub(crate) fn needs(&self, target: &str) -> Needs {
        let is_in = |targets: &[String]| targets.iter().any(|name| name == target);
        if is_in(&self.cluster) {
            Needs::Cluster
        } else if is_in(&self.live) {
            Needs::Servers
        } else {
            Needs::Nothing
        }
    }

    fn of(metadata: &Value) -> Self {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut found = Self::default();
        for target in
            list(&metadata["packages"]).iter().flat_map(|package| list(&package["targets"]))
        {
            let has = |key: &str, what: &str| list(&target[key]).iter().any(|one| one == what);
            let Some(name) = target["name"].as_str().filter(|_| has("kind", "test")) else {
                continue;
            };
            if has("required-features", "cluster") {
                found.cluster.push(name.to_owned());
            } else if has("required-features", "live") && name != SERVERS_THEMSELVES {
                found.live.push(name.to_owned());
            }
        }
        found
    }
}

/// Runs test targets.
///
/// Any selection builds with the same features, so packages are built only once.
pub(crate) fn cargo_test(targets: &[String]) -> Command {
    let mut command = cargo("test --workspace --all-features");
    for target in targets {
        command.args(["--test", target]);
    }
    command
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cargo_calls_drop_the_variables_of_xtask() {
        // Cargo sets the variable for this test.
        assert!(env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = cargo("build");
        let is_removed =
            command.get_envs().any(|(name, value)| name == "CARGO_MANIFEST_DIR" && value.is_none());
        assert!(is_removed, "{command:?}");
        assert!(!is_about_package("CARGO_TARGET_DIR"));
    }

    #[test]
    fn test_targets_differ_by_their_needs() {
        let metadata = json!({"packages": [
            {"name": "a", "targets": [
                {"kind": ["lib"], "name": "a"},
                {"kind": ["test"], "name": "rules"},
                {"kind": ["test"], "name": "loss", "required-features": ["cluster"]},
            ]},
            {"name": "b", "targets": [
                {"kind": ["test"], "name": "engine", "required-features": ["live"]},
                {"kind": ["test"], "name": "live", "required-features": ["live"]},
                {"kind": ["bin"], "name": "b", "required-features": ["live"]},
            ]},
        ]});
        let targets = TestTargets::of(&metadata);
        let needs = ["rules", "engine", "live", "loss"].map(|name| targets.needs(name));
        assert_eq!(needs, [Needs::Nothing, Needs::Servers, Needs::Nothing, Needs::Cluster]);
        assert_eq!(targets.live(), ["engine"]);
    }
}
