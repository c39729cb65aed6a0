//! Calling cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Failure;

/// A call of cargo in the workspace's root.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments.split_whitespace());
    command
}

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |path| root().join(path))
}

/// The test targets of the workspace, by what they need.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestTargets {
    /// Nothing.
    pub(crate) plain: Vec<String>,
    /// One server of each kind, or servers of their own (feature `live`).
    pub(crate) live: Vec<String>,
    /// Three nodes (feature `cluster`).
    pub(crate) cluster: Vec<String>,
}

impl TestTargets {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self, Failure> {
        let output = cargo("metadata --no-deps --format-version 1").output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(Self::of(&serde_json::from_slice(&output.stdout)?))
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
            let group = if has("required-features", "cluster") {
                &mut found.cluster
            } else if has("required-features", "live") {
                &mut found.live
            } else {
                &mut found.plain
            };
            group.push(name.to_owned());
        }
        found
    }
}

/// Runs test targets. Whatever is selected, packages are built with the same features, and so but once.
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
    fn test_targets_are_told_apart_by_what_they_need() {
        let metadata = json!({"packages": [
            {"name": "a", "targets": [
                {"kind": ["lib"], "name": "a"},
                {"kind": ["test"], "name": "rules"},
                {"kind": ["test"], "name": "loss", "required-features": ["cluster"]},
            ]},
            {"name": "b", "targets": [
                {"kind": ["test"], "name": "engine", "required-features": ["live"]},
                {"kind": ["bin"], "name": "b", "required-features": ["live"]},
            ]},
        ]});
        let expected = TestTargets {
            plain: vec!["rules".into()],
            live: vec!["engine".into()],
            cluster: vec!["loss".into()],
        };
        assert_eq!(TestTargets::of(&metadata), expected);
    }
}
