//! What happened, as a live line and as a table in the end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use txn_fixtures::fixture::Fixture;

/// What a run came to.
#[derive(Debug, Default)]
pub struct Report {
    /// What was counted, in order.
    pub lines: Vec<(String, u64)>,
    /// What did not hold.
    pub violations: Vec<String>,
}

impl Report {
    /// The table of a load, the faults that it met, and what did not hold.
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

    /// The table of a soak. What it wrote is dropped, unless something did not hold.
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

/// The live line.
pub(crate) fn progress(span: Duration) -> ProgressBar {
    let bar = ProgressBar::new(span.as_secs());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
