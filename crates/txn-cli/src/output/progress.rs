//! A sign on a terminal that long work goes on.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

/// The pause between two pictures of the sign.
const TICK: Duration = Duration::from_millis(120);

/// Shows the present step of long work on standard error, until the value is dropped.
///
/// Nothing is shown if standard error is no terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins with the first step. `hidden`: show nothing, for programs.
    #[must_use]
    pub fn begin(step: &'static str, hidden: bool) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(match hidden {
            true => ProgressDrawTarget::hidden(),
            // Hidden as well unless standard error is a terminal.
            false => ProgressDrawTarget::stderr(),
        });
        let progress = Self(bar);
        progress.step(step);
        progress.0.enable_steady_tick(TICK);
        progress
    }

    /// Shows another step.
    pub fn step(&self, step: &'static str) {
        self.0.set_message(step);
    }

    /// Shows how much of a step is done.
    pub fn part(&self, step: &str, done: usize, all: usize) {
        self.0.set_message(format!("{step}: {done} of {all}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
