//! `cargo xtask administrators`.

use txn_testkit::servers::ServerKind;

use crate::cargo::cargo;
use crate::servers::Borrowed;
use crate::{Failure, prerequisites};

/// Runs the named cases, or all cases, on one version.
pub(crate) fn run(target: ServerKind, cases: &[String], rest: &[String]) -> Result<(), Failure> {
    prerequisites::for_servers(&[target])?;
    let mut command = cargo("run -q -p txn-administrators --");
    command.args(["--target", target.name()]);
    if !cases.is_empty() {
        command.arg("--cases").arg(cases.join(","));
    }
    command.args(rest);
    let servers = Borrowed::up(&[target])?;
    let status = command.envs(servers.variables().iter().cloned()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{target}: {status}").into()) }
}
