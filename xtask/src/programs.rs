//! Test programs: built once, run concurrently, ended after a bound.
//!
//! Most programs wait for leases or servers most of the time.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Failure;
use crate::cargo::{forget_xtask, root, target};
use crate::steps::{self, Notes};
use crate::times::Times;

/// How often the runner checks whether a program has ended.
const CHECK: Duration = Duration::from_millis(50);

/// How long a program may run. The slowest takes twelve minutes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(25 * 60);

/// The slow programs, the slowest first. The order counts until a run has measured them.
const SLOW: [&str; 14] = [
    "models/models",
    "simulation/all",
    DOC_TESTS,
    "txn-bank/all",
    "histories/all",
    "txn-outbox/all",
    "txn-lock/all",
    "txn-testkit/live",
    "txn-core/all",
    "txn-requests/all",
    "live/live_servers",
    "histories/live_servers",
    "txn-outbox/live_servers",
    "txn-es/live_servers",
];

/// The name of the doc tests.
pub(crate) const DOC_TESTS: &str = "tests in the documentation";

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Package and target, such as `txn-lock/live_locks`.
    pub(crate) name: String,
    /// The name of its target.
    pub(crate) target: String,
    executable: PathBuf,
    /// The arguments of the program.
    arguments: Vec<String>,
    /// The folder in which it runs.
    folder: PathBuf,
    /// The folder of its package, which cargo tells test programs.
    package: Option<PathBuf>,
}

impl Program {
    /// Returns a cargo call that compiles and runs tests, as a program.
    pub(crate) fn of_cargo(name: &str, cargo: &Command) -> Self {
        let words = cargo.get_args().map(|word| word.to_string_lossy().into_owned());
        Self {
            name: name.to_owned(),
            target: name.to_owned(),
            executable: cargo.get_program().into(),
            arguments: words.collect(),
            folder: root(),
            package: None,
        }
    }

    /// Returns a program from a build message of cargo.
    ///
    /// `None` for any other message.
    fn of(message: &Value) -> Option<Self> {
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let target = message["target"]["name"].as_str()?;
        let package = folder.file_name()?.to_string_lossy();
        Some(Self {
            name: format!("{package}/{target}"),
            target: target.to_owned(),
            executable: message["executable"].as_str()?.into(),
            arguments: Vec::new(),
            folder: folder.to_owned(),
            package: Some(folder.to_owned()),
        })
    }

    /// Returns the last duration, or a guess.
    ///
    /// On a new machine, the guesses have the order of [`SLOW`].
    fn expected(&self, times: &Times) -> Duration {
        let rank = SLOW.iter().rev().position(|name| *name == self.name).map_or(0, |rank| rank + 1);
        let guess = Duration::from_secs(u64::try_from(rank).unwrap_or_default());
        times.last(&self.name).unwrap_or(guess)
    }
}

/// Builds the tests of all packages by a call of cargo.
pub(crate) fn build(mut cargo: Command) -> Result<Vec<Program>, Failure> {
    let mut programs = Vec::new();
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    steps::each_line(cargo, |line| {
        programs.extend(serde_json::from_str(line).ok().as_ref().and_then(Program::of));
    })?;
    Ok(programs)
}

/// A running program.
struct Running {
    program: Program,
    child: Child,
    began: Instant,
    log: PathBuf,
}

impl Running {
    /// Ends the program. Its output so far stays in its log.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No program outlives the run that started it.
impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.end();
        }
    }
}

/// How programs run.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    /// How many programs run at the same time.
    pub(crate) at_once: usize,
    /// How long one program may run.
    pub(crate) bound: Duration,
    /// Arguments that all programs get.
    pub(crate) arguments: &'a [&'a str],
    /// Variables that all programs get.
    pub(crate) variables: &'a [(&'static str, String)],
}

impl Runner<'_> {
    /// Runs programs, the slowest first.
    ///
    /// The runner prints the output of a program after its end, and keeps the results of its tests.
    /// After a failure no further program starts. After a hung program, the remaining ones end at
    /// once.
    pub(crate) fn run(
        &self,
        mut programs: Vec<Program>,
        notes: &mut Notes<'_>,
    ) -> Result<(), Failure> {
        if programs.is_empty() {
            return Err("there is no test program for this step".into());
        }
        let logs = target().join("xtask/logs");
        fs::create_dir_all(&logs)?;
        programs.sort_by_key(|program| Reverse(program.expected(notes.times)));
        let mut waiting: VecDeque<Program> = programs.into();
        let mut running: Vec<Running> = Vec::new();
        let mut failed: Vec<String> = Vec::new();
        while !running.is_empty() || (failed.is_empty() && !waiting.is_empty()) {
            while failed.is_empty() && running.len() < self.at_once.max(1) {
                let Some(program) = waiting.pop_front() else { break };
                running.push(self.start(program, &logs)?);
            }
            if let Some((ended, status)) = next_end(&mut running)? {
                let took = ended.began.elapsed();
                show(&ended, took, notes.results)?;
                if status.success() {
                    notes.times.note(&ended.program.name, took);
                } else {
                    failed.push(format!("{} ({status})", ended.program.name));
                }
            } else if let Some(hung) = self.next_hung(&mut running) {
                failed.push(hung?);
                break;
            } else {
                thread::sleep(CHECK);
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join(", ").into()) }
    }

    fn start(&self, program: Program, logs: &Path) -> Result<Running, Failure> {
        let log = logs.join(format!("{}.log", program.name.replace('/', "-")));
        let output = File::create(&log)?;
        let errors = output.try_clone()?;
        eprintln!("-- {} begins", program.name);
        let mut command = Command::new(&program.executable);
        forget_xtask(&mut command);
        let child = command
            .args(&program.arguments)
            .args(self.arguments)
            .current_dir(&program.folder)
            .envs(program.package.iter().map(|folder| ("CARGO_MANIFEST_DIR", folder)))
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", program.executable.display()))?;
        Ok(Running { program, child, began: Instant::now(), log })
    }

    /// Ends a program that exceeds the bound, and describes it.
    ///
    /// `None` if there is no such program.
    fn next_hung(&self, running: &mut Vec<Running>) -> Option<io::Result<String>> {
        let index = running.iter().position(|running| running.began.elapsed() > self.bound)?;
        let mut hung = running.swap_remove(index);
        hung.end();
        Some(self.describe_hung(&hung))
    }

    fn describe_hung(&self, hung: &Running) -> io::Result<String> {
        show(hung, hung.began.elapsed(), &mut Vec::new())?;
        let (name, seconds) = (&hung.program.name, self.bound.as_secs());
        let tests = unfinished(&String::from_utf8_lossy(&fs::read(&hung.log)?)).join(", ");
        let tests = if tests.is_empty() { "no test that is known".to_owned() } else { tests };
        Ok(format!("{name} did not end within {seconds} s; in it ran: {tests}"))
    }
}

/// Returns the unfinished tests that ran for over a minute.
///
/// `text` is the output of a program.
fn unfinished(text: &str) -> Vec<&str> {
    let tests = text.lines().filter_map(|line| {
        line.strip_prefix("test ")?.split_once(" has been running for over").map(|(name, _)| name)
    });
    let has_ended = |name: &str| text.contains(&format!("\ntest {name} ... "));
    tests.filter(|name| !has_ended(name)).collect()
}

/// Returns a program that has ended, if any has.
fn next_end(running: &mut Vec<Running>) -> io::Result<Option<(Running, ExitStatus)>> {
    for index in 0..running.len() {
        if let Some(status) = running[index].child.try_wait()? {
            return Ok(Some((running.swap_remove(index), status)));
        }
    }
    Ok(None)
}

/// Prints a program's output, and keeps the results of its tests.
fn show(ended: &Running, took: Duration, results: &mut Vec<String>) -> io::Result<()> {
    let text = fs::read(&ended.log)?;
    let mut out = io::stdout().lock();
    writeln!(out, "-- {} ({:.1} s)", ended.program.name, took.as_secs_f64())?;
    out.write_all(&text)?;
    let text = String::from_utf8_lossy(&text);
    results.extend(text.lines().filter(|line| line.starts_with(steps::RESULT)).map(str::to_owned));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::times::Times;

    fn program(name: &str, script: &str) -> (Program, tempfile::TempDir) {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("program");
        fs::write(&executable, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        let folder_of_package = folder.path().to_owned();
        let program = Program {
            name: format!("xtask-tests/{name}"),
            target: name.to_owned(),
            executable,
            arguments: Vec::new(),
            folder: folder_of_package.clone(),
            package: Some(folder_of_package),
        };
        (program, folder)
    }

    fn runner(at_once: usize) -> Runner<'static> {
        Runner { at_once, bound: BOUND, arguments: &["--word"], variables: &[] }
    }

    fn run_all(runner: &Runner<'_>, programs: Vec<Program>) -> (Result<(), Failure>, Vec<String>) {
        let (mut times, mut results) = (Times::default(), Vec::new());
        let mut notes = Notes { results: &mut results, times: &mut times };
        let ended = runner.run(programs, &mut notes);
        (ended, results)
    }

    #[test]
    fn only_test_programs_are_taken_from_cargo() {
        let artifact = |test: bool| {
            json!({
                "reason": "compiler-artifact", "profile": {"test": test},
                "manifest_path": "/work/crates/txn-lock/Cargo.toml",
                "target": {"name": "live_locks"}, "executable": "/target/live_locks-1",
            })
        };
        let program = Program::of(&artifact(true)).unwrap();
        assert_eq!(
            (program.name.as_str(), program.target.as_str()),
            ("txn-lock/live_locks", "live_locks")
        );
        assert_eq!(program.folder, Path::new("/work/crates/txn-lock"));
        assert_eq!(Program::of(&artifact(false)), None);
        assert_eq!(Program::of(&json!({"reason": "build-finished"})), None);
    }

    #[test]
    fn results_of_every_program_are_kept() {
        let (one, _one) =
            program("one", "echo \"test result: ok. $1\"; test \"$PWD\" = \"$CARGO_MANIFEST_DIR\"");
        let (two, _two) = program("two", "echo 'test result: ok. two' >&2");
        let (ended, mut results) = run_all(&runner(2), vec![one, two]);
        ended.unwrap();
        results.sort();
        assert_eq!(results, ["test result: ok. --word", "test result: ok. two"]);
    }

    #[test]
    fn failure_names_its_program_and_starts_no_other() {
        let (bad, _bad) = program("bad", "exit 3");
        let (good, _good) = program("good", "true");
        let (never, folder) = program("never", "touch \"$CARGO_MANIFEST_DIR/ran\"");
        let (mut times, mut results) = (Times::default(), Vec::new());
        times.note("xtask-tests/bad", Duration::from_secs(9));
        times.note("xtask-tests/good", Duration::from_secs(8));
        times.note("xtask-tests/never", Duration::from_secs(7));
        let mut notes = Notes { results: &mut results, times: &mut times };
        let ended = runner(1).run(vec![never, good, bad], &mut notes);
        assert!(ended.unwrap_err().to_string().contains("xtask-tests/bad"));
        assert!(!folder.path().join("ran").exists());
    }

    #[test]
    fn hung_program_ends_the_run_and_is_named() {
        let (hung, _hung) = program("hung", "exec sleep 600");
        let (waits, _waits) = program("waits", "exec sleep 600");
        let runner = Runner { bound: Duration::from_secs(1), ..runner(2) };
        let (ended, _) = run_all(&runner, vec![hung, waits]);
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("did not end within 1 s"), "{error}");
    }

    #[test]
    fn unfinished_tests_are_named() {
        let text = "
test a has been running for over 60 seconds
test b has been running for over 60 seconds
test a ... ok
";
        assert_eq!(unfinished(text), ["b"]);
    }

    #[test]
    fn step_without_programs_fails() {
        let (ended, _) = run_all(&runner(1), Vec::new());
        assert!(ended.unwrap_err().to_string().contains("no test program"));
    }

    #[test]
    fn slow_programs_start_first_on_a_new_machine() {
        let (slow, _slow) = program("slow", "true");
        let slow = Program { name: SLOW[1].to_owned(), ..slow };
        let (other, _other) = program("other", "true");
        let mut times = Times::default();
        assert!(slow.expected(&times) > other.expected(&times));
        times.note(&other.name, Duration::from_secs(100));
        assert_eq!(other.expected(&times), Duration::from_secs(100));
    }
}
