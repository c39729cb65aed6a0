//! `cargo xtask features`: checks each package without features, and with each feature alone.

use serde_json::Value;

use crate::Failure;
use crate::cargo::cargo;
use crate::steps::watch;

/// Checks all combinations in one target folder.
pub(crate) fn check() -> Result<(), Failure> {
    let output = cargo("metadata --no-deps --format-version 1").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let mut failed = Vec::new();
    for arguments in combinations(&serde_json::from_slice(&output.stdout)?) {
        println!("cargo {arguments}");
        if watch(cargo(&arguments), &mut Vec::new()).is_err() {
            failed.push(arguments);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("these fail:\n  cargo {}", failed.join("\n  cargo ")).into()),
    }
}

/// Returns the arguments of cargo for each combination.
///
/// A package without features of its own is the same in each build of the workspace.
fn combinations(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut all = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let features = package["features"].as_object().into_iter().flatten();
        let features: Vec<&str> =
            features.map(|(feature, _)| feature.as_str()).filter(|of| *of != "default").collect();
        if features.is_empty() {
            continue;
        }
        let plain = format!("check -p {name} --no-default-features");
        let alone = features.iter().map(|feature| format!("{plain} --features {feature}"));
        all.extend([plain.clone()].into_iter().chain(alone));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_feature_is_checked_alone() {
        let package = |name: &str, features: Value| json!({"name": name, "features": features});
        let metadata = json!({"packages": [
            package("plain", json!({})),
            package("proxy", json!({"default": ["hold"], "hold": [], "tls": ["hold"]})),
        ]});
        let check = "check -p proxy --no-default-features";
        let expected = [
            check.to_owned(),
            format!("{check} --features hold"),
            format!("{check} --features tls"),
        ];
        assert_eq!(combinations(&metadata), expected);
    }
}
