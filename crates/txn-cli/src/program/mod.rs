//! The frame of a command: wrong usage, logs, runtime, and panics.
//!
//! The panics are those of the embedded store.

#[cfg(feature = "opentelemetry")]
mod traces;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use crate::without_logins;

#[cfg(feature = "opentelemetry")]
pub use traces::{Traces, init_logging_and_traces};

/// Prints help, the version, or the error of a wrong command line. Ends the process, or returns 2.
///
/// `store`: the environment variable with the address of the store. Logins are left out.
#[must_use]
pub fn report_usage_error(error: &clap::Error, store: &str) -> ExitCode {
    let plain = error.to_string();
    let said = without_logins(&plain, store);
    if said == plain {
        error.exit();
    }
    let _ = write!(io::stderr(), "{said}");
    ExitCode::from(2)
}

/// Sends logs to standard error, as the environment variable asks.
///
/// `level`: the level of the targets that the variable does not name, such as `off`.
pub fn init_logging(variable: &str, level: &str) {
    let lines = tracing_subscriber::fmt().with_ansi(has_colors()).with_writer(io::stderr);
    lines.with_env_filter(log_filter(variable, level)).init();
}

/// Whether a person reads standard error, and wants colors.
fn has_colors() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// The filter of the variable. A warning names an unfit filter, and `level` alone holds.
fn log_filter(variable: &str, level: &str) -> EnvFilter {
    let wanted = std::env::var(variable).unwrap_or_default();
    EnvFilter::try_new(format!("{level},{wanted}")).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "warning: {variable} is no filter of logs: {error}");
        EnvFilter::new(level)
    })
}

/// Runs the work of a command in a runtime of its own.
///
/// The runtime ends after the work.
///
/// # Errors
/// If the runtime cannot start.
pub fn run<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(Box::pin(work));
    // Other processes finish the remaining background work.
    runtime.shutdown_timeout(Duration::from_millis(200));
    Ok(done)
}

/// Silences panics of redb.
///
/// A damaged file makes redb panic. The store catches the panic and returns an error, which the
/// command prints. Other panics are printed as usual.
pub fn silence_redb_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or("", std::panic::Location::file);
        match place.contains("/redb-") {
            true => tracing::error!(%panic, "redb panicked"),
            false => tell(panic),
        }
    }));
}
