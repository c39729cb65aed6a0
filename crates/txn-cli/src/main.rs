//! The command `txn`. See `txn --help`.

mod answer;
mod args;
mod session;
mod verbs;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use txn_cli::{visible, without_logins};

use answer::{Answer, Failure};
use args::{Cli, STORE};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TXN_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    keep_damage_quiet();
    let json = cli.global.json;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Failure::unfit(format!("cannot start: {error}")), json),
    };
    let done = runtime.block_on(Box::pin(verbs::run(cli)));
    // Other processes finish the remaining background work.
    runtime.shutdown_timeout(Duration::from_millis(200));
    match done {
        Ok(answer) => tell(&answer, json),
        Err(failure) => fail(&failure, json),
    }
}

/// Prints an answer.
fn tell(answer: &Answer, json: bool) -> ExitCode {
    match answer.print(json) {
        Ok(()) => answer.exit.into(),
        // The reader has seen enough, as `head` has.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => answer.exit.into(),
        Err(error) => {
            let failure = Failure::unfit(format!("the output could not be written: {error}"));
            fail(&failure, false)
        }
    }
}

/// Prints help, the version, or the error of a wrong command line.
fn misused(error: &clap::Error) -> ExitCode {
    let plain = error.to_string();
    let said = without_logins(&plain, STORE);
    if said == plain {
        error.exit();
    }
    let _ = write!(std::io::stderr(), "{said}");
    ExitCode::from(2)
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

/// Silences panics of redb.
///
/// A damaged file makes redb panic. The store catches the panic and returns an error, which the
/// command prints. Other panics are printed as usual.
fn keep_damage_quiet() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or("", std::panic::Location::file);
        match place.contains("/redb-") {
            true => tracing::error!(%panic, "redb panicked"),
            false => tell(panic),
        }
    }));
}
