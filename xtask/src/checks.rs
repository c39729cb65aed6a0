//! `cargo xtask test` and `cargo xtask bench`.

use txn_testkit::servers::ServerKind;

use crate::cargo::{cargo, has_test_target};
use crate::servers::Borrowed;
use crate::steps::Steps;
use crate::{Failure, prerequisites};

/// The servers of the suites that need one node of each kind.
const SINGLE: [ServerKind; 4] = [
    ServerKind::Elasticsearch,
    ServerKind::Elasticsearch7,
    ServerKind::OpenSearch,
    ServerKind::Secured,
];

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
        if quick { Ok(()) } else { prerequisites::for_servers(&ServerKind::ALL) }
    })?;
    steps.command("format", &mut cargo("fmt --all --check"))?;
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
    steps.command("tests of every package", &mut cargo("test --workspace --exclude txn-tests"))?;
    on_single_servers(steps)?;
    on_a_cluster(steps)
}

fn on_single_servers(steps: &mut Steps) -> Result<(), Failure> {
    let servers = steps.run("start one server of each kind", |_| Borrowed::up(&SINGLE))?;
    steps.command("tests of the test kit", &mut cargo("test -p txn-testkit --features live"))?;
    for (what, tests) in [
        ("tests of the store on servers", "test -p txn-es --features live --test live_*"),
        ("tests of the bank on servers", "test -p txn-bank --features live --test live_servers"),
        ("tests on servers", "test -p txn-tests --features live"),
        ("isolation on servers", "test -p txn-isolation --features live --test live_*"),
    ] {
        steps.command(what, cargo(tests).envs(servers.variables().iter().cloned()))?;
    }
    Ok(())
}

fn on_a_cluster(steps: &mut Steps) -> Result<(), Failure> {
    if !has_test_target("txn-tests", "cluster")? {
        eprintln!("== no test target of txn-tests is named cluster*: no cluster is started");
        return Ok(());
    }
    let cluster = steps.run("start a cluster", |_| Borrowed::up(&[ServerKind::Cluster]))?;
    steps.command(
        "tests on a cluster",
        cargo("test -p txn-tests --features live,cluster --test cluster*")
            .envs(cluster.variables().iter().cloned()),
    )
}

/// Runs the benchmarks.
pub(crate) fn bench(arguments: &[String]) -> Result<(), Failure> {
    let kinds = [ServerKind::Elasticsearch];
    prerequisites::for_servers(&kinds)?;
    let servers = Borrowed::up(&kinds)?;
    let status = cargo("bench -p txn-benches")
        .args(arguments)
        .envs(servers.variables().iter().cloned())
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("cargo bench: {status}").into()) }
}
