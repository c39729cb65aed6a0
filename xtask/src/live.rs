//! `cargo xtask live`: the suites on real servers, on one version.

use txn_testkit::servers::ServerKind;

use crate::cargo::{TestTargets, cargo_test};
use crate::checks::AT_ONCE;
use crate::servers::Borrowed;
use crate::{Failure, prerequisites};

/// Runs every suite on one version.
///
/// `rest` has options of the test programs.
pub(crate) fn run(target: ServerKind, rest: &[String]) -> Result<(), Failure> {
    prerequisites::for_servers(&[target])?;
    let mut command = cargo_test(TestTargets::find()?.live());
    command.args(["--", "--test-threads", AT_ONCE, module(target)]).args(rest);
    let servers = Borrowed::up(&[target])?;
    let status = command.envs(servers.variables().iter().cloned()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{target}: {status}").into()) }
}

/// Returns the module in the names of tests on a version.
fn module(target: ServerKind) -> &'static str {
    match target {
        ServerKind::Elasticsearch => "elasticsearch8::",
        ServerKind::Elasticsearch7 => "elasticsearch7::",
        ServerKind::Elasticsearch9 => "elasticsearch9::",
        ServerKind::OpenSearch2 => "opensearch2::",
        _ => "opensearch3::",
    }
}
