//! Named steps that run in sequence until one fails, with expected times.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::times::Times;

type Action = Box<dyn FnOnce(&mut Notes<'_>) -> Result<(), Failure>>;

/// The notes that a step may extend.
pub(crate) struct Notes<'a> {
    /// Lines at the end of the summary.
    pub(crate) results: &'a mut Vec<String>,
    /// The durations of its parts.
    pub(crate) times: &'a mut Times,
}

/// A step of a task.
pub(crate) struct Step {
    name: String,
    /// The duration if no run has measured it.
    guess: Duration,
    action: Action,
}

impl Step {
    /// Creates a step that works in this process.
    pub(crate) fn work(
        name: impl Into<String>,
        guess: Duration,
        action: impl FnOnce(&mut Notes<'_>) -> Result<(), Failure> + 'static,
    ) -> Self {
        Self { name: name.into(), guess, action: Box::new(action) }
    }

    /// Creates a step from a command, with its output on the terminal.
    pub(crate) fn command(name: impl Into<String>, guess: Duration, command: Command) -> Self {
        Self::work(name, guess, move |notes| watch(command, notes.results))
    }
}

/// Runs steps, and reports the progress.
///
/// The reports come before all steps, before each step, and at the end.
pub(crate) fn run(steps: Vec<Step>, times: &mut Times) -> Result<(), Failure> {
    let mut progress = Progress::of(&steps, times);
    eprintln!("== {}", progress.outlook());
    let mut results = Vec::new();
    let began = Instant::now();
    let mut ended = Ok(());
    for Step { name, action, .. } in steps {
        eprintln!("== {}", progress.next(began.elapsed()));
        let begins = Instant::now();
        let result = action(&mut Notes { results: &mut results, times });
        let took = begins.elapsed();
        eprintln!("== {}", progress.done(took, result.is_ok()));
        match result {
            Ok(()) => times.note(&name, took),
            Err(error) => {
                ended = Err(format!("step `{name}` failed: {error}").into());
                break;
            }
        }
    }
    print!("{}", progress.summary(&results));
    ended
}

/// The planned steps, and their results.
#[derive(Debug)]
struct Progress {
    planned: Vec<Planned>,
    done: Vec<(Duration, bool)>,
}

#[derive(Debug)]
struct Planned {
    name: String,
    expected: Duration,
    /// Whether the time is measured, and not an estimate.
    known: bool,
}

impl Progress {
    fn of(steps: &[Step], times: &Times) -> Self {
        let planned = steps.iter().map(|step| {
            let last = times.last(&step.name);
            let expected = last.unwrap_or(step.guess);
            Planned { name: step.name.clone(), expected, known: last.is_some() }
        });
        Self { planned: planned.collect(), done: Vec::new() }
    }

    /// Returns the number of steps, and their expected time.
    fn outlook(&self) -> String {
        let known = self.planned.iter().filter(|step| step.known).count();
        let why = match known {
            0 => "a guess: nothing was run here before".to_owned(),
            n if n == self.planned.len() => "as long as they took here last".to_owned(),
            n => format!("{n} as long as they took here last, the rest are estimates"),
        };
        format!("{} steps, about {}: {why}", self.planned.len(), words(self.to_go()))
    }

    fn to_go(&self) -> Duration {
        self.planned[self.done.len()..].iter().map(|step| step.expected).sum()
    }

    fn header(&self, index: usize) -> String {
        format!("{}/{} {}", index + 1, self.planned.len(), self.planned[index].name)
    }

    /// Describes the step that begins.
    fn next(&self, elapsed: Duration) -> String {
        let (step, header) = (&self.planned[self.done.len()], self.header(self.done.len()));
        format!(
            "{header} (about {}; {} gone, about {} to go)",
            words(step.expected),
            words(elapsed),
            words(self.to_go())
        )
    }

    /// Records the end of the current step, and describes it.
    fn done(&mut self, took: Duration, ok: bool) -> String {
        let header = self.header(self.done.len());
        self.done.push((took, ok));
        format!("{header}: {} in {:.1} s", outcome(ok), took.as_secs_f64())
    }

    /// Returns all steps with their times, then cargo's test results verbatim.
    fn summary(&self, results: &[String]) -> String {
        let mut text = String::from("== summary\n             took  expected  step\n");
        for (index, step) in self.planned.iter().enumerate() {
            let (word, took) = match self.done.get(index) {
                Some((took, ok)) => (outcome(*ok), format!("{:.1} s", took.as_secs_f64())),
                None => ("not run", String::new()),
            };
            let expected = format!("{}{}", if step.known { "" } else { "~" }, words(step.expected));
            let _ = writeln!(text, "{word:7}{took:>10}{expected:>10}  {}", self.header(index));
        }
        let all: Duration = self.done.iter().map(|(took, _)| *took).sum();
        let _ = writeln!(text, "{:7}{:>8.1} s", "all", all.as_secs_f64());
        for line in results {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn outcome(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

/// Formats a duration.
fn words(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..6_000 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", Duration::from_secs(seconds).as_secs_f64() / 3600.0),
    }
}

/// The prefix of a line with the number of passed tests.
pub(crate) const RESULT: &str = "test result: ";

/// Runs a command, and collects test results from its output.
pub(crate) fn watch(command: Command, results: &mut Vec<String>) -> Result<(), Failure> {
    each_line(command, |line| {
        println!("{line}");
        if line.starts_with(RESULT) {
            results.push(line.to_owned());
        }
    })
}

/// Runs a command, and calls `look` with each line of its output.
pub(crate) fn each_line(mut command: Command, mut look: impl FnMut(&str)) -> Result<(), Failure> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            look(&String::from_utf8_lossy(&line?));
        }
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn steps() -> Vec<Step> {
        let step = |name, seconds| Step::command(name, SECOND * seconds, shell("true"));
        vec![step("format", 10), step("lints", 300), step("tests", 600)]
    }

    #[test]
    fn outlook_states_its_basis() {
        let mut times = Times::default();
        assert_eq!(
            Progress::of(&steps(), &times).outlook(),
            "3 steps, about 15 min: a guess: nothing was run here before"
        );
        times.note("tests", SECOND * 60);
        assert_eq!(
            Progress::of(&steps(), &times).outlook(),
            "3 steps, about 6 min: 1 as long as they took here last, the rest are estimates"
        );
        times.note("format", SECOND);
        times.note("lints", SECOND);
        assert_eq!(
            Progress::of(&steps(), &times).outlook(),
            "3 steps, about 62 s: as long as they took here last"
        );
    }

    #[test]
    fn each_step_reports_its_position() {
        let mut progress = Progress::of(&steps(), &Times::default());
        assert_eq!(
            progress.next(Duration::ZERO),
            "1/3 format (about 10 s; 0 s gone, about 15 min to go)"
        );
        assert_eq!(progress.done(SECOND * 2, true), "1/3 format: ok in 2.0 s");
        assert_eq!(
            progress.next(SECOND * 2),
            "2/3 lints (about 5 min; 2 s gone, about 15 min to go)"
        );
        assert_eq!(progress.done(SECOND * 400, true), "2/3 lints: ok in 400.0 s");
        assert_eq!(
            progress.next(SECOND * 402),
            "3/3 tests (about 10 min; 7 min gone, about 10 min to go)"
        );
    }

    #[test]
    fn summary_has_every_step_and_the_test_results() {
        let mut progress = Progress::of(&steps(), &Times::default());
        progress.done(SECOND * 2, true);
        progress.done(SECOND * 400, false);
        let summary = progress.summary(&["test result: ok. 3 passed".to_owned()]);
        let expected = "== summary
             took  expected  step
ok          2.0 s     ~10 s  1/3 format
FAILED    400.0 s    ~5 min  2/3 lints
not run             ~10 min  3/3 tests
all       402.0 s
test result: ok. 3 passed
";
        assert_eq!(summary, expected);
    }

    #[test]
    fn durations_are_for_people() {
        let word = |seconds| words(SECOND * seconds);
        assert_eq!(
            [word(0), word(99), word(100), word(5_999)],
            ["0 s", "99 s", "2 min", "100 min"]
        );
        assert_eq!(word(6_000), "1.7 h");
    }

    #[test]
    fn results_of_tests_are_kept() {
        let mut results = Vec::new();
        watch(shell("echo hello; echo 'test result: ok. 3 passed'"), &mut results).unwrap();
        assert_eq!(results, ["test result: ok. 3 passed"]);
    }

    #[test]
    fn failure_names_its_step_and_ends_the_run() {
        let mut times = Times::default();
        let mut steps = steps();
        steps[1] = Step::command("lints", SECOND, shell("exit 3"));
        steps[2] = Step::work("tests", SECOND, |_| panic!("it is not run"));
        let error = run(steps, &mut times).unwrap_err().to_string();
        assert!(error.contains("`lints`") && error.contains('3'), "{error}");
        assert!(times.last("format").is_some() && times.last("lints").is_none());
    }
}
