//! `cargo xtask test`.

use txn_testkit::servers::ServerKind;

use crate::cargo::{TestTargets, cargo, cargo_test};
use crate::servers::Borrowed;
use crate::steps::Steps;
use crate::{Failure, prerequisites, tidy};

/// The servers of the suites that need one node of each kind.
const SINGLE: [ServerKind; 4] = [
    ServerKind::Elasticsearch,
    ServerKind::Elasticsearch7,
    ServerKind::OpenSearch,
    ServerKind::Secured,
];

/// The test target that starts and crashes one server of each kind, each by itself.
const SERVERS_THEMSELVES: &str = "live";

/// How many tests run at once on servers: most of their time they wait for leases to run out.
const AT_ONCE: &str = "8";

/// Runs every check, stops at the first that fails, and says in the end what was run.
pub(crate) fn test(quick: bool) -> Result<(), Failure> {
    let mut steps = Steps::default();
    let result = all(&mut steps, quick);
    print!("{}", steps.summary());
    result
}

fn all(steps: &mut Steps, quick: bool) -> Result<(), Failure> {
    steps.run("prerequisites", |_| {
        prerequisites::for_checks()?;
        if quick {
            return Ok(());
        }
        prerequisites::postgres()?;
        prerequisites::for_servers(&ServerKind::ALL)
    })?;
    steps.command("format", &mut cargo("fmt --all --check"))?;
    steps.run("tidy", |_| tidy::tidy())?;
    steps.command(
        "lints",
        &mut cargo("clippy --workspace --all-targets --all-features -- -D warnings"),
    )?;
    steps.run("cargo-deny is installed", |_| prerequisites::cargo_deny())?;
    steps.command("licenses and sources", &mut cargo("deny check bans licenses sources"))?;
    steps.command(
        "docs",
        cargo("doc --workspace --no-deps --all-features").env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    if quick {
        return steps.command("tests without servers", &mut cargo("test --workspace"));
    }
    let TestTargets { plain, live, cluster } = TestTargets::find()?;
    let (of_servers, live) =
        live.into_iter().partition::<Vec<_>, _>(|name| name == SERVERS_THEMSELVES);
    steps.command("build the tests", cargo_test(&[]).arg("--no-run"))?;
    steps.command(
        "tests of every package",
        cargo_test(&plain).args(["--lib", "--bins", "--examples"]),
    )?;
    steps.command("tests in the documentation", cargo_test(&[]).arg("--doc"))?;
    steps.command("tests of the servers themselves", &mut cargo_test(&of_servers))?;
    on(steps, "a server of each kind", &SINGLE, &live)?;
    on(steps, "a cluster", &[ServerKind::Cluster], &cluster)
}

/// Runs test targets on servers that are up for as long.
fn on(
    steps: &mut Steps,
    what: &str,
    kinds: &[ServerKind],
    targets: &[String],
) -> Result<(), Failure> {
    let servers = steps.run(&format!("start {what}"), |_| Borrowed::up(kinds))?;
    steps.command(
        &format!("tests on {what}"),
        cargo_test(targets)
            .args(["--", "--test-threads", AT_ONCE])
            .envs(servers.variables().iter().cloned()),
    )
}
