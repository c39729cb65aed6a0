//! The results, as a live line and as a final table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use txn_fixtures::fixture::Fixture;

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The counts, in order.
    pub lines: Vec<(String, u64)>,
    /// Violations.
    pub violations: Vec<String>,
}

impl Report {
    /// Creates the report of a load, with its faults and violations.
    pub(crate) fn new(
        began: Instant,
        rounds: u64,
        counted: Vec<(String, u64)>,
        faults: &BTreeMap<String, u64>,
        violations: Vec<String>,
    ) -> Self {
        let mut lines =
            vec![("seconds".to_owned(), began.elapsed().as_secs()), ("rounds".to_owned(), rounds)];
        lines.extend(counted);
        lines.extend(faults.iter().map(|(kind, times)| (format!("fault: {kind}"), *times)));
        lines.push(("violations".to_owned(), violations.len() as u64));
        Self { lines, violations }
    }

    /// Creates the report of a soak.
    ///
    /// Drops the data of the soak unless there is a violation.
    pub(crate) async fn of(
        mut lines: Vec<(String, u64)>,
        violations: Vec<String>,
        fixture: Fixture,
    ) -> Self {
        lines.push(("violations".to_owned(), violations.len() as u64));
        if violations.is_empty() {
            fixture.clear().await;
        }
        Self { lines, violations }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.lines {
            writeln!(f, "{what:<44}{count:>12}")?;
        }
        for violation in &self.violations {
            writeln!(f, "VIOLATION {violation}")?;
        }
        Ok(())
    }
}

/// Returns the live line.
pub(crate) fn progress(span: Duration) -> ProgressBar {
    let bar = ProgressBar::new(span.as_secs());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
