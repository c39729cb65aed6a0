//! Checks the required programs of the machine, and installs them if possible.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use txn_testkit::servers::{
    ServerKind, check_namespaces, find_java, find_maven, find_pgbouncer, find_postgres,
};

use crate::Failure;
use crate::cargo::{cargo, forget_xtask, root, target};

/// The disk space of a full build and of servers, in GiB.
///
/// Without incremental compilation.
const DISK: u64 = 6;

/// The disk space of a later run, in GiB. A full build exists before this run.
const DISK_AGAIN: u64 = 2;

/// Checks the disk space, because a linker reports a full disk unclearly.
///
/// `again`: most of the build exists already.
pub(crate) fn disk(again: bool) -> Result<(), Failure> {
    let target = target();
    let needed = if again { DISK_AGAIN } else { DISK };
    let output = Command::new("df").arg("-Pk").arg(&target).output()?;
    match free_gib(&String::from_utf8_lossy(&output.stdout)) {
        Some(free) if free < needed => {
            let target = target.display();
            Err(format!("{target} has {free} GiB free, and {needed} are needed").into())
        }
        _ => Ok(()),
    }
}

/// Returns the free space of one file system.
///
/// `df` is the output of `df -Pk`.
fn free_gib(df: &str) -> Option<u64> {
    let kib: u64 = df.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib >> 20)
}

/// Checks that cargo can format and lint.
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

/// A running installation of cargo-deny.
///
/// The installation takes minutes, at the lowest priority.
pub(crate) struct CargoDeny {
    installing: Child,
    log: PathBuf,
}

impl CargoDeny {
    /// Starts the installation, unless cargo-deny exists.
    pub(crate) fn begin() -> Result<Option<Self>, Failure> {
        if succeeds(&mut cargo("deny --version")) {
            return Ok(None);
        }
        let folder = target().join("xtask");
        std::fs::create_dir_all(&folder)?;
        let log = folder.join("cargo-deny.log");
        let output = File::create(&log)?;
        eprintln!("installing cargo-deny in the meantime, this happens once: {}", log.display());
        let install = cargo("install cargo-deny --locked --debug");
        let mut command = Command::new("nice");
        forget_xtask(&mut command);
        // Without optimization the build takes a third of the time, and the program is fast enough.
        // A folder of its own avoids waiting for the lock of other builds.
        command
            .current_dir(root())
            .args(["-n", "19"])
            .arg(install.get_program())
            .args(install.get_args());
        command.arg("--target-dir").arg(folder.join("cargo-deny"));
        let errors = output.try_clone()?;
        let installing = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn()?;
        Ok(Some(Self { installing, log }))
    }

    /// Waits for the end of the installation.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        let status = self.installing.wait()?;
        if status.success() {
            let _ = std::fs::remove_dir_all(target().join("xtask/cargo-deny"));
            return Ok(());
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        Err(format!("cargo-deny cannot be installed ({status}):\n{log}").into())
    }
}

/// Ends the installation if a check fails early.
impl Drop for CargoDeny {
    fn drop(&mut self) {
        if let Ok(None) = self.installing.try_wait() {
            let _ = self.installing.kill();
            let _ = self.installing.wait();
        }
    }
}

/// Checks that these servers can be downloaded and run.
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
    if kinds.iter().any(|kind| kind.is_partitioned()) && check_namespaces().is_err() {
        install_first_of(["nftables".to_owned()])?;
        check_namespaces()?;
    }
    if find_maven().is_err() {
        install_first_of(["maven".to_owned()])?;
        find_maven()?;
    }
    Ok(())
}

/// Checks that tests can start a PostgreSQL and a PgBouncer.
///
/// The PgBouncer is in front of the PostgreSQL.
pub(crate) fn postgres() -> Result<(), Failure> {
    if find_postgres().is_err() {
        install_first_of(["postgresql".to_owned()])?;
        find_postgres()?;
    }
    if find_pgbouncer().is_err() {
        install_first_of(["pgbouncer".to_owned()])?;
        find_pgbouncer()?;
    }
    Ok(())
}

/// Checks that alert rules can be tested.
pub(crate) fn promtool() -> Result<(), Failure> {
    let exists = || succeeds(Command::new("promtool").arg("--version"));
    if !exists() {
        install_first_of(["prometheus".to_owned()])?;
    }
    match exists() {
        true => Ok(()),
        false => Err("promtool is missing: install the package prometheus".into()),
    }
}

/// Installs the first of these packages that the distribution has.
///
/// If this is impossible, the function does nothing, because the test then reports the missing
/// program.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_read_from_df() {
        let df = "Filesystem     1024-blocks      Used Available Capacity Mounted on
/dev/vda         263935776  89512345   6291456      94% /
";
        assert_eq!(free_gib(df), Some(6));
        assert_eq!(free_gib("df: no such file"), None);
    }
}
