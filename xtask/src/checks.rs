//! `cargo xtask test`.

use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use txn_testkit::servers::ServerKind;

use crate::cargo::{TestTargets, cargo, cargo_test};
use crate::servers::Borrowed;
use crate::steps::{self, Step};
use crate::times::Times;
use crate::{Failure, prerequisites, tidy};

/// The servers of the suites that need one node of each kind.
const SINGLE: [ServerKind; 6] = [
    ServerKind::Elasticsearch7,
    ServerKind::Elasticsearch,
    ServerKind::Elasticsearch9,
    ServerKind::OpenSearch2,
    ServerKind::OpenSearch,
    ServerKind::Secured,
];

/// The test target that starts and crashes one server of each kind, each by itself.
pub(crate) const SERVERS_THEMSELVES: &str = "live";

/// Tests whose names hold this are left to `cargo xtask live`.
const LEFT_OUT: &str = "matrix::";

/// How many tests run at once on servers: most of their time they wait for leases to run out.
pub(crate) const AT_ONCE: &str = "8";

/// Runs every check, stops at the first that fails, and says in the end what was run.
pub(crate) fn test(quick: bool) -> Result<(), Failure> {
    let mut times = Times::of_this_machine();
    let steps = match quick {
        true => without_servers(&times),
        false => with_servers(TestTargets::find()?, &times),
    };
    steps::run(steps, &mut times)
}

// The guesses are of the first run on a machine with two cores that does other things, too.

fn before_the_tests(quick: bool, times: &Times) -> Vec<Step> {
    let again = times.last("docs").is_some();
    let mut docs = cargo("doc --workspace --no-deps --all-features");
    docs.env("RUSTDOCFLAGS", "-D warnings");
    vec![
        Step::work("prerequisites", seconds(5), move |_| {
            prerequisites::disk(again)?;
            prerequisites::for_checks()?;
            if quick {
                return Ok(());
            }
            prerequisites::postgres()?;
            prerequisites::for_servers(&ServerKind::ALL)
        }),
        Step::command("format", seconds(5), cargo("fmt --all --check")),
        Step::work("tidy", seconds(2), |_| tidy::tidy()),
        Step::command(
            "lints",
            minutes(6),
            cargo("clippy --workspace --all-targets --all-features -- -D warnings"),
        ),
        Step::work("cargo-deny is installed", seconds(2), |_| prerequisites::cargo_deny()),
        Step::command(
            "licenses and sources",
            seconds(10),
            cargo("deny check bans licenses sources"),
        ),
        Step::command("docs", minutes(3), docs),
    ]
}

fn without_servers(times: &Times) -> Vec<Step> {
    let mut steps = before_the_tests(true, times);
    steps.push(Step::command("tests without servers", minutes(25), cargo("test --workspace")));
    steps
}

fn with_servers(targets: TestTargets, times: &Times) -> Vec<Step> {
    let TestTargets { plain, live, cluster } = targets;
    let (of_servers, live) =
        live.into_iter().partition::<Vec<_>, _>(|name| name == SERVERS_THEMSELVES);
    let command = |name: &str, guess, mut command: Command, more: &[&str]| {
        command.args(more);
        Step::command(name, guess, command)
    };
    let mut steps = before_the_tests(false, times);
    steps.extend([
        command("build the tests", minutes(15), cargo_test(&[]), &["--no-run"]),
        command(
            "tests of every package",
            minutes(8),
            cargo_test(&plain),
            &["--lib", "--bins", "--examples"],
        ),
        command("tests in the documentation", minutes(5), cargo_test(&[]), &["--doc"]),
        command("tests of the servers themselves", minutes(4), cargo_test(&of_servers), &[]),
    ]);
    steps.extend(on("a server of each kind", &SINGLE, &live, minutes(15)));
    steps.extend(on("a cluster", &[ServerKind::Cluster], &cluster, minutes(5)));
    steps
}

/// Starts servers, and runs test targets on them; they are up for as long.
fn on(what: &str, kinds: &'static [ServerKind], targets: &[String], guess: Duration) -> [Step; 2] {
    let up = Rc::new(Cell::new(None));
    let started = up.clone();
    let start = Step::work(format!("start {what}"), minutes(2), move |_| {
        started.set(Some(Borrowed::up(kinds)?));
        Ok(())
    });
    let mut tests = cargo_test(targets);
    tests.args(["--", "--test-threads", AT_ONCE, "--skip", LEFT_OUT]);
    let tests = Step::work(format!("tests on {what}"), guess, move |results| {
        let servers: Option<Borrowed> = up.take();
        let variables = servers.iter().flat_map(|servers| servers.variables().iter().cloned());
        tests.envs(variables);
        steps::watch(tests, results)
    });
    [start, tests]
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}
