//! Named steps, run one after the other until one fails.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// What was run so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration, Outcome)>,
    /// The lines in which cargo reports the results of tests.
    results: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    Failed,
}

impl Steps {
    /// Runs a step under a header.
    pub(crate) fn run<T>(
        &mut self,
        name: &str,
        step: impl FnOnce(&mut Vec<String>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        eprintln!("== {name}");
        let began = Instant::now();
        let result = step(&mut self.results);
        let (took, outcome) =
            (began.elapsed(), if result.is_ok() { Outcome::Ok } else { Outcome::Failed });
        eprintln!("== {name}: {} in {:.1} s", outcome.word(), took.as_secs_f64());
        self.done.push((name.to_owned(), took, outcome));
        result.map_err(|error| format!("step `{name}` failed: {error}").into())
    }

    /// Runs a command as a step; what it prints is shown as it comes.
    pub(crate) fn command(&mut self, name: &str, command: &mut Command) -> Result<(), Failure> {
        self.run(name, |results| watch(command, results))
    }

    /// All steps with their times, then cargo's test results as cargo wrote them.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("== summary\n");
        for (name, took, outcome) in &self.done {
            let _ = writeln!(text, "{:7}{:7.1} s  {name}", outcome.word(), took.as_secs_f64());
        }
        for line in &self.results {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "FAILED",
        }
    }
}

fn watch(command: &mut Command, results: &mut Vec<String>) -> Result<(), Failure> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            if line.starts_with("test result: ") {
                results.push(line);
            }
        }
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn results_of_tests_end_the_summary() {
        let mut steps = Steps::default();
        steps.command("one", &mut shell("echo hello; echo 'test result: ok. 3 passed'")).unwrap();
        steps.command("two", &mut shell("true")).unwrap();
        let summary = steps.summary();
        assert!(summary.contains("one") && summary.contains("two"), "{summary}");
        assert!(summary.ends_with("\ntest result: ok. 3 passed\n"), "{summary}");
    }

    #[test]
    fn a_failure_names_its_step() {
        let mut steps = Steps::default();
        let error = steps.command("lints", &mut shell("exit 3")).unwrap_err().to_string();
        assert!(error.contains("`lints`") && error.contains('3'), "{error}");
        assert!(steps.summary().contains("FAILED"));
    }
}
