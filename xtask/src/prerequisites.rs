//! What must be installed on the machine, and installing it where that is known to be possible.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use txn_testkit::servers::{ServerKind, find_java, find_maven, find_pgbouncer, find_postgres};

use crate::Failure;
use crate::cargo::{cargo, forget_xtask, root, target};

/// What a build of everything takes, without what is kept to build it again, and servers with their data, in GiB.
const DISK: u64 = 6;

/// What a further run takes, where most of it is built, in GiB.
const DISK_AGAIN: u64 = 2;

/// Makes sure that what is built has room, for a linker that finds none says so in a way that nobody understands. `again`: most of
/// it is built already.
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

/// What is free, out of what `df -Pk` says of one file system.
fn free_gib(df: &str) -> Option<u64> {
    let kib: u64 = df.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib >> 20)
}

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

/// An installation of cargo-deny under way. It takes minutes, and only the time that nothing else
/// wants.
pub(crate) struct CargoDeny {
    installing: Child,
    log: PathBuf,
}

impl CargoDeny {
    /// Begins to install it, unless it is there.
    pub(crate) fn begin() -> Result<Option<Self>, Failure> {
        if succeeds(&mut cargo("deny --version")) {
            return Ok(None);
        }
        let folder = target().join("xtask");
        std::fs::create_dir_all(&folder)?;
        let log = folder.join("cargo-deny.log");
        let output = File::create(&log)?;
        eprintln!("installing cargo-deny meanwhile, this happens once: {}", log.display());
        let install = cargo("install cargo-deny --locked --debug");
        let mut command = Command::new("nice");
        forget_xtask(&mut command);
        // Unoptimized it is built in a third of the time, and is fast enough. Its builds wait for
        // no others in a folder of its own.
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

    /// Waits until it is installed.
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

/// A check that ends early does not leave it running.
impl Drop for CargoDeny {
    fn drop(&mut self) {
        if let Ok(None) = self.installing.try_wait() {
            let _ = self.installing.kill();
            let _ = self.installing.wait();
        }
    }
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

/// Makes sure that tests can start a PostgreSQL of their own, and a PgBouncer in front of it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_read_from_df() {
        let df = "Filesystem     1024-blocks      Used Available Capacity Mounted on
/dev/vda         263935776  89512345   6291456      94% /
";
        assert_eq!(free_gib(df), Some(6));
        assert_eq!(free_gib("df: no such file"), None);
    }
}
