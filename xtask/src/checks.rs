//! `cargo xtask test`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use clap::ValueEnum;
use txn_testkit::servers::ServerKind;

use crate::cargo::{Needs, TestTargets, cargo, cargo_test};
use crate::monitoring::{check_dashboard, promtool};
use crate::prerequisites::CargoDeny;
use crate::programs::{self, Program, Runner};
use crate::servers::Borrowed;
use crate::steps::{self, Step};
use crate::times::Times;
use crate::{Failure, lint, prerequisites};

/// The servers of the suites that need one node of each kind.
const SINGLE: [ServerKind; 6] = [
    ServerKind::Elasticsearch7,
    ServerKind::Elasticsearch,
    ServerKind::Elasticsearch9,
    ServerKind::OpenSearch2,
    ServerKind::OpenSearch,
    ServerKind::Secured,
];

/// The part of the names of tests that only `cargo xtask live` runs.
const LEFT_OUT: &str = "matrix::";

/// The number of concurrent tests of one program on servers.
///
/// The tests mostly wait for leases to expire.
pub(crate) const AT_ONCE: &str = "4";

/// The number of concurrent test programs, without servers and on servers.
const PROGRAMS: usize = 3;
const PROGRAMS_ON_SERVERS: usize = 3;

/// A part of the checks, for jobs that run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Format, lint, clippy, documentation and licenses.
    Checks,
    /// The tests that need no server, or start servers themselves.
    Packages,
    /// The tests on one server of each version.
    Servers,
    /// The tests on a cluster.
    Cluster,
}

/// Runs every check, or one part, until the first failure.
///
/// Prints a summary.
pub(crate) fn test(quick: bool, part: Option<Part>) -> Result<(), Failure> {
    let mut times = Times::of_this_machine();
    let steps = match quick {
        true => without_servers(&times),
        false => with_servers(TestTargets::find()?, &times, part),
    };
    steps::run(steps, &mut times)
}

// The estimates are from the first run on a busy machine with two cores.

/// Returns the first steps, and the last one.
///
/// If cargo-deny is missing, it is installed in the meantime.
fn before_the_tests(times: &Times, part: Option<Part>) -> (Vec<Step>, Step) {
    let (checks, tests) = (includes(part, Part::Checks), part != Some(Part::Checks));
    let again = times.last("docs").is_some();
    let mut docs = cargo("doc --workspace --no-deps --all-features");
    docs.env("RUSTDOCFLAGS", "-D warnings");
    let installing = Rc::new(Cell::new(None));
    let begun = installing.clone();
    let mut steps = vec![
        Step::work("prerequisites", seconds(5), move |_| {
            prerequisites::disk(again)?;
            prerequisites::for_checks()?;
            if checks {
                begun.set(CargoDeny::begin()?);
            }
            if tests {
                prerequisites::postgres()?;
                prerequisites::promtool()?;
                prerequisites::for_servers(&ServerKind::ALL)?;
            }
            Ok(())
        }),
        Step::command("format", seconds(5), cargo("fmt --all --check")),
        Step::work("lint", seconds(2), |_| lint::lint()),
        Step::command(
            "clippy",
            minutes(3),
            cargo("clippy --workspace --all-targets --all-features -- -D warnings"),
        ),
        Step::command("docs", minutes(2), docs),
    ];
    if !checks {
        steps.truncate(1);
    }
    let licenses = Step::work("licenses and sources", seconds(30), move |notes| {
        installing.take().map_or(Ok(()), CargoDeny::end)?;
        steps::watch(cargo("deny check bans licenses sources"), notes.results)
    });
    (steps, licenses)
}

fn without_servers(times: &Times) -> Vec<Step> {
    let (mut steps, licenses) = before_the_tests(times, Some(Part::Checks));
    steps.push(Step::command("tests without servers", minutes(25), cargo("test --workspace")));
    steps.push(licenses);
    steps
}

fn includes(part: Option<Part>, one: Part) -> bool {
    part.is_none_or(|part| part == one)
}

fn with_servers(targets: TestTargets, times: &Times, part: Option<Part>) -> Vec<Step> {
    let (mut steps, licenses) = before_the_tests(times, part);
    let tests = Tests { targets: Rc::new(targets), built: Rc::default() };
    if part != Some(Part::Checks) {
        steps.push(tests.build());
    }
    if includes(part, Part::Packages) {
        steps.push(tests.run("tests of every package", minutes(8)));
        for call in ["check rules alerts.yml", "test rules alerts_test.yml"] {
            let name = format!("promtool {call}");
            steps.push(Step::command(name, seconds(1), promtool(call)));
        }
        steps.push(Step::work("promtool on the dashboard", seconds(1), |notes| {
            check_dashboard(notes.results)
        }));
    }
    if includes(part, Part::Servers) {
        steps.extend(tests.on("a server of each version", &SINGLE, minutes(10), Needs::Servers));
    }
    if includes(part, Part::Cluster) {
        let cluster = &[ServerKind::Cluster];
        steps.extend(tests.on("a cluster", cluster, minutes(4), Needs::Cluster));
    }
    if includes(part, Part::Checks) {
        steps.push(licenses);
    }
    steps
}

/// The programs of all tests, after the build.
struct Tests {
    targets: Rc<TestTargets>,
    built: Rc<RefCell<Vec<Program>>>,
}

impl Tests {
    fn build(&self) -> Step {
        let built = self.built.clone();
        Step::work("build the tests", minutes(5), move |_| {
            *built.borrow_mut() = programs::build(cargo_test(&[]))?;
            Ok(())
        })
    }

    /// Runs the doc tests, and the programs without shared servers.
    ///
    /// Such a program needs no servers, or starts its own.
    fn run(&self, name: &str, guess: Duration) -> Step {
        let chosen = self.chosen(Needs::Nothing);
        Step::work(name, guess, move |notes| {
            let mut chosen = chosen();
            let doc_tests = cargo("test --workspace --all-features --doc");
            chosen.push(Program::of_cargo(programs::DOC_TESTS, &doc_tests));
            runner(PROGRAMS, &[], &[]).run(chosen, notes)
        })
    }

    /// Starts servers for the time of the programs that need them.
    fn on(
        &self,
        what: &str,
        kinds: &'static [ServerKind],
        guess: Duration,
        needs: Needs,
    ) -> [Step; 2] {
        let up = Rc::new(Cell::new(None));
        let (started, chosen) = (up.clone(), self.chosen(needs));
        let start = Step::work(format!("start {what}"), minutes(1), move |_| {
            started.set(Some(Borrowed::up(kinds)?));
            Ok(())
        });
        let tests = Step::work(format!("tests on {what}"), guess, move |notes| {
            let servers: Option<Borrowed> = up.take();
            let variables = servers.as_ref().map(Borrowed::variables).unwrap_or_default();
            let arguments = ["--test-threads", AT_ONCE, "--skip", LEFT_OUT];
            runner(PROGRAMS_ON_SERVERS, &arguments, variables).run(chosen(), notes)
        });
        [start, tests]
    }

    /// Returns the programs with these needs, after the build.
    fn chosen(&self, needs: Needs) -> impl FnOnce() -> Vec<Program> + 'static {
        let (targets, built) = (self.targets.clone(), self.built.clone());
        move || {
            let has = |program: &&Program| targets.needs(&program.target) == needs;
            built.borrow().iter().filter(has).cloned().collect()
        }
    }
}

fn runner<'a>(
    at_once: usize,
    arguments: &'a [&'a str],
    variables: &'a [(&'static str, String)],
) -> Runner<'a> {
    Runner { at_once, bound: programs::BOUND, arguments, variables }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}
