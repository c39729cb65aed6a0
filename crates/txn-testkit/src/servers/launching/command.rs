//! Runs commands, and reports why they failed.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use crate::servers::error::{Error, Result, last_lines};

/// Runs a command to its end, and returns its stdout.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    check(command, output)
}

/// Like [`run`], with input on stdin, which stays out of error messages.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    });
    check(command, output)
}

fn check(command: &Command, output: io::Result<Output>) -> Result<String> {
    let (outcome, printed) = match output {
        Ok(output) if output.status.success() => {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(output) => (
            output.status.to_string(),
            String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
        ),
        Err(error) => (error.to_string(), String::new()),
    };
    Err(Error::Command { command: describe(command), outcome, output: last_lines(&printed, 30) })
}

fn describe(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_command_status_and_output() {
        let error = run(Command::new("sh").args(["-c", "echo oops >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c") && text.contains('3') && text.contains("oops"), "{text}");
    }

    #[test]
    fn input_is_passed_on() {
        assert_eq!(run_with_input(&mut Command::new("cat"), "hello").unwrap(), "hello");
    }
}
