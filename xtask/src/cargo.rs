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

/// Whether a package has a test target whose name begins so.
pub(crate) fn has_test_target(package: &str, prefix: &str) -> Result<bool, Failure> {
    let output = cargo("metadata --no-deps --format-version 1").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(test_targets(&metadata, package).any(|name| name.starts_with(prefix)))
}

fn test_targets<'a>(metadata: &'a Value, package: &str) -> impl Iterator<Item = &'a str> {
    let list = |value: &'a Value| value.as_array().map(Vec::as_slice).unwrap_or_default();
    list(&metadata["packages"])
        .iter()
        .filter(move |candidate| candidate["name"] == package)
        .flat_map(move |found| list(&found["targets"]))
        .filter(move |target| list(&target["kind"]).iter().any(|kind| kind == "test"))
        .filter_map(|target| target["name"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_test_targets_of_the_package_count() {
        let metadata = json!({"packages": [
            {"name": "a", "targets": [
                {"kind": ["lib"], "name": "cluster_lib"},
                {"kind": ["test"], "name": "cluster_loss"},
            ]},
            {"name": "b", "targets": [{"kind": ["test"], "name": "other"}]},
        ]});
        assert_eq!(test_targets(&metadata, "a").collect::<Vec<_>>(), ["cluster_loss"]);
        assert_eq!(test_targets(&metadata, "b").collect::<Vec<_>>(), ["other"]);
    }
}
