//! The command `txn`. See `txn --help`.

mod answer;
mod args;
mod config;
mod selection;
mod session;
mod verbs;

use std::io::Write;
use std::process::ExitCode;

use clap::FromArgMatches;
use txn_cli::{program, visible, without_logins};

use answer::{Answer, Failure, is_read};
use args::{Cli, STORE};

fn main() -> ExitCode {
    let cli = match config::command().and_then(parse) {
        Ok(cli) => cli,
        Err(error) => return program::report_usage_error(&error, STORE),
    };
    program::init_logging("TXN_LOG");
    program::silence_redb_panics();
    let json = cli.global.json;
    let done = program::run(verbs::run(cli))
        .unwrap_or_else(|error| Err(Failure::unfit(format!("cannot start: {error}"))));
    match done {
        Ok(answer) => tell(&answer, json),
        Err(failure) => fail(&failure, json),
    }
}

fn parse(command: clap::Command) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command.try_get_matches()?)
}

/// Prints an answer.
fn tell(answer: &Answer, json: bool) -> ExitCode {
    match is_read(answer.print(json)) {
        Ok(_) => answer.exit.into(),
        Err(failure) => fail(&failure, false),
    }
}

/// Prints one line on standard error, and optionally JSON on standard output.
fn fail(failure: &Failure, json: bool) -> ExitCode {
    let line = without_logins(&failure.line(), STORE);
    let _ = writeln!(std::io::stderr(), "error: {}", visible(&line));
    if json {
        // The exit code and the line above report the error, too.
        let _ = failure.print(json);
    }
    failure.exit.into()
}
