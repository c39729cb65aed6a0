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

/// The variable with the filter of the logs.
const LOGS: &str = "TXN_LOG";

/// The level of logs that the variable does not change.
///
/// A command prints its errors; a gateway has only its log.
fn level(cli: &Cli) -> &'static str {
    match &cli.command {
        args::Command::Serve(_) => "warn",
        _ => "off",
    }
}

fn main() -> ExitCode {
    let cli = match config::command().and_then(parse) {
        Ok(cli) => cli,
        Err(error) => return program::report_usage_error(&error, STORE),
    };
    let json = cli.global.json;
    #[cfg(not(feature = "opentelemetry"))]
    program::init_logging(LOGS, level(&cli));
    #[cfg(feature = "opentelemetry")]
    let traces = match init_logging_and_traces(&cli) {
        Ok(traces) => traces,
        Err(failure) => return fail(&failure, json),
    };
    program::silence_redb_panics();
    let done = program::run(verbs::run(cli))
        .unwrap_or_else(|error| Err(Failure::unfit(format!("cannot start: {error}"))));
    #[cfg(feature = "opentelemetry")]
    if let Some(traces) = traces {
        traces.end();
    }
    match done {
        Ok(answer) => tell(&answer, json),
        Err(failure) => fail(&failure, json),
    }
}

/// Sends logs to standard error, and the traces of a gateway to a collector.
#[cfg(feature = "opentelemetry")]
fn init_logging_and_traces(cli: &Cli) -> Result<Option<program::Traces>, Failure> {
    let args::Command::Serve(options) = &cli.command else {
        program::init_logging(LOGS, level(cli));
        return Ok(None);
    };
    let logs = (LOGS, level(cli));
    let traces =
        program::init_logging_and_traces(logs, options.otlp_endpoint.as_deref(), "txn-serve");
    traces.map_err(|error| Failure::unfit(format!("cannot send traces: {error}")))
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
