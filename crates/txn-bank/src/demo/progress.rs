//! Progress messages of the demo, on standard error. The report comes at the end.

use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

pub(crate) struct Progress {
    began: Instant,
    is_quiet: bool,
    /// Hidden without a terminal.
    spinner: ProgressBar,
}

impl Progress {
    pub(crate) fn new(began: Instant, is_quiet: bool) -> Self {
        let spinner = match is_quiet {
            true => ProgressBar::hidden(),
            false => ProgressBar::new_spinner(),
        };
        spinner.enable_steady_tick(Duration::from_millis(100));
        Self { began, is_quiet, spinner }
    }

    /// Prints a line that stays.
    pub(crate) fn say(&self, what: impl Display) {
        if self.is_quiet {
            return;
        }
        let line = format!("{:>6.2} s  {what}", self.began.elapsed().as_secs_f64());
        match self.spinner.is_hidden() {
            false => self.spinner.println(line),
            // A lost line does no harm.
            true => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    pub(crate) fn end(&self) {
        self.spinner.finish_and_clear();
    }
}
