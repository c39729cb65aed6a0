//! What must be installed on the machine, and installing it where that is known to be possible.

use std::path::Path;
use std::process::{Command, Stdio};

use txn_testkit::servers::{ServerKind, find_java, find_maven, find_postgres};

use crate::Failure;
use crate::cargo::cargo;

/// Makes sure that cargo can format and lint.
pub(crate) fn for_checks() -> Result<(), Failure> {
    for (call, component) in [("fmt --version", "rustfmt"), ("clippy --version", "clippy")] {
        if !succeeds(&mut cargo(call)) {
            return Err(
                format!("{component} is missing: `rustup component add {component}`").into()
            );
        }
    }
    Ok(())
}

/// Makes sure that there is `cargo deny`.
pub(crate) fn cargo_deny() -> Result<(), Failure> {
    if succeeds(&mut cargo("deny --version")) {
        return Ok(());
    }
    eprintln!("installing cargo-deny, this happens once");
    // Unoptimized it is built in a third of the time, and is fast enough.
    run(&mut cargo("install cargo-deny --locked --debug"))
}

/// Makes sure that these servers can be downloaded and run.
pub(crate) fn for_servers(kinds: &[ServerKind]) -> Result<(), Failure> {
    for kind in kinds {
        let versions = kind.java_versions();
        if find_java(versions).is_err() {
            let packages = [17, 21, 25]
                .into_iter()
                .filter(|&version| versions.contain(version))
                .map(|version| format!("openjdk-{version}-jre-headless"));
            install_first_of(packages)?;
            find_java(versions).map_err(|error| format!("{kind}: {error}"))?;
        }
    }
    if find_maven().is_err() {
        install_first_of(["maven".to_owned()])?;
        find_maven()?;
    }
    Ok(())
}

/// Makes sure that tests can start a PostgreSQL of their own.
pub(crate) fn postgres() -> Result<(), Failure> {
    if find_postgres().is_err() {
        install_first_of(["postgresql".to_owned()])?;
        find_postgres()?;
    }
    Ok(())
}

/// Installs the first of these packages that the distribution has; does nothing where that is not
/// possible, since whoever needs it then says what is missing.
fn install_first_of(packages: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    if !Path::new("/usr/bin/apt-get").exists() || !is_root() {
        return Ok(());
    }
    run(Command::new("apt-get").args(["update", "-q"]))?;
    let known = |package: &String| succeeds(Command::new("apt-cache").args(["show", package]));
    match packages.into_iter().find(known) {
        Some(package) => run(Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-q", "--no-install-recommends", &package])),
        None => Ok(()),
    }
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command whose output is progress, not a result.
fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
