//! What is said while the demo runs, on standard error: the story itself is told at its end.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use txn_core::Tid;

use crate::demo::journal::{Told, who};
use crate::demo::line::Line;

pub(crate) struct Progress {
    began: Instant,
    spinner: ProgressBar,
    is_quiet: bool,
    /// What killed workers left, and who of them.
    left: BTreeMap<Tid, usize>,
}

impl Progress {
    pub(crate) fn new(began: Instant, is_quiet: bool) -> Self {
        let spinner = match std::io::stderr().is_terminal() && !is_quiet {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        spinner.enable_steady_tick(Duration::from_millis(100));
        Self { began, spinner, is_quiet, left: BTreeMap::new() }
    }

    /// A line that stays.
    pub(crate) fn say(&self, what: impl Display) {
        if self.is_quiet {
            return;
        }
        let line = format!("{:>6.2} s  {what}", self.began.elapsed().as_secs_f64());
        match self.spinner.is_hidden() {
            false => self.spinner.println(line),
            // Whoever does not read it misses nothing.
            true => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// A worker was killed, and left these.
    pub(crate) fn was_killed(&mut self, worker: usize, left: impl Iterator<Item = Tid>) {
        self.left.extend(left.map(|tid| (tid, worker)));
    }

    /// Says what became of something that a killed worker left.
    pub(crate) fn hear(&mut self, told: &Told) {
        let (tid, fate) = match &told.line {
            Line::Replayed { tid, .. } => (tid, "writes out"),
            Line::AbortedByRecovery { tid, .. } => (tid, "voids"),
            Line::Wounded { victim, .. } => (victim, "takes the locks of"),
            _ => return,
        };
        if let Some(worker) = self.left.remove(tid) {
            let (by, left_by) = (who(told.worker), who(worker));
            self.say(format_args!("{by} {fate} {tid}, which {left_by} left behind"));
        }
    }

    pub(crate) fn end(&self) {
        self.spinner.finish_and_clear();
    }
}
