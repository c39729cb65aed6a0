//! `cargo xtask package`: checks that every published crate can be packed.

use serde_json::Value;

use crate::Failure;
use crate::cargo::cargo;

/// The fields of a crate that a registry shows.
const SHOWN: [&str; 5] = ["description", "license", "readme", "repository", "rust_version"];

/// The files of each package, in addition to its sources.
const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The placeholder for the repository's address in the manifest. The address is not known yet.
const NO_REPOSITORY_YET: &str = "OWNER/REPOSITORY";

/// Checks the manifests, and packs everything without a build.
pub(crate) fn package() -> Result<(), Failure> {
    let metadata = serde_json::from_slice(&output("metadata --no-deps --format-version 1")?)?;
    let packages = published(&metadata);
    let mut gaps: Vec<String> = packages.iter().flat_map(|package| missing(package)).collect();
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for name in &names {
        let listed = output(&format!("package --list --allow-dirty -p {name}"))?;
        gaps.extend(left_out(name, &String::from_utf8_lossy(&listed)));
    }
    if !gaps.is_empty() {
        return Err(format!("not fit to be published:\n  {}", gaps.join("\n  ")).into());
    }
    let mut pack = cargo("package --no-verify --allow-dirty");
    for name in &names {
        pack.args(["-p", name]);
    }
    let status = pack.status()?;
    if !status.success() {
        return Err(format!("cargo package: {status}").into());
    }
    println!("{} crates can be packed: {}", names.len(), names.join(", "));
    if packages.iter().any(|package| has(package, "repository", NO_REPOSITORY_YET)) {
        println!("not yet: `repository` in Cargo.toml still says {NO_REPOSITORY_YET}");
    }
    Ok(())
}

fn output(arguments: &str) -> Result<Vec<u8>, Failure> {
    let output = cargo(arguments).output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

fn has(package: &Value, field: &str, text: &str) -> bool {
    package[field].as_str().is_some_and(|value| value.contains(text))
}

/// Returns the packages that may be published.
///
/// `null` allows any registry, and a list names registries.
fn published(metadata: &Value) -> Vec<&Value> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    packages.iter().filter(|package| package["publish"] != serde_json::json!([])).collect()
}

/// Returns missing fields and dependencies of a manifest.
///
/// A dependency is missing if a registry lacks it.
fn missing(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut gaps = Vec::new();
    for field in SHOWN {
        if package[field].as_str().is_none_or(str::is_empty) {
            gaps.push(format!("{name} has no {field}"));
        }
    }
    let count = |field: &str| package[field].as_array().map_or(0, Vec::len);
    for field in ["keywords", "categories"] {
        if !(1..=5).contains(&count(field)) {
            gaps.push(format!("{name} has {} {field}, 1 to 5 are due", count(field)));
        }
    }
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        // A package leaves out test dependencies without a version.
        let unversioned = dependency["req"] == "*" && dependency["path"].is_string();
        if unversioned && dependency["kind"] != "dev" {
            gaps.push(format!("{name} depends on {} without a version", dependency["name"]));
        }
    }
    gaps
}

/// Returns the required files that a package lacks.
fn left_out(name: &str, listed: &str) -> Vec<String> {
    let missing = FILES.iter().filter(|file| !listed.lines().any(|line| line == **file));
    missing.map(|file| format!("{name} is packed without {file}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sound() -> Value {
        json!({
            "name": "a", "publish": null, "description": "A.", "license": "MIT", "readme": "README.md",
            "repository": "https://example.org/a", "rust_version": "1.95",
            "keywords": ["one"], "categories": ["database"],
            "dependencies": [
                {"name": "b", "kind": null, "req": "^0.1", "path": "/b"},
                {"name": "tests", "kind": "dev", "req": "*", "path": "/tests"},
            ],
        })
    }

    #[test]
    fn a_sound_package_has_no_gaps() {
        assert_eq!(missing(&sound()), Vec::<String>::new());
    }

    #[test]
    fn missing_fields_are_named() {
        for field in SHOWN {
            let mut package = sound();
            package[field] = Value::Null;
            assert_eq!(missing(&package), [format!("a has no {field}")]);
        }
        let mut package = sound();
        package["keywords"] = json!([]);
        assert_eq!(missing(&package), ["a has 0 keywords, 1 to 5 are due"]);
    }

    #[test]
    fn a_path_without_a_version_is_for_tests_only() {
        let mut package = sound();
        package["dependencies"][1]["kind"] = Value::Null;
        assert_eq!(missing(&package), ["a depends on \"tests\" without a version"]);
    }

    #[test]
    fn private_packages_are_ignored() {
        let metadata = json!({"packages": [sound(), {"name": "xtask", "publish": []}]});
        assert_eq!(published(&metadata), [&sound()]);
    }

    #[test]
    fn licenses_are_packed() {
        let all = "Cargo.toml\nLICENSE-APACHE\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\n";
        assert_eq!(left_out("a", all), Vec::<String>::new());
        assert_eq!(
            left_out("a", &all.replace("LICENSE-MIT\n", "")),
            ["a is packed without LICENSE-MIT"]
        );
    }
}
