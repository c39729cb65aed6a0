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

/// The duration from which on a run must have each planned fault.
const ENOUGH: Duration = Duration::from_secs(600);

/// Returns the planned faults that never happened, as violations.
///
/// A run without a fault proves nothing about it. A short run need not reach each fault.
pub(crate) fn missed(
    span: Duration,
    planned: impl IntoIterator<Item = String>,
    happened: &BTreeMap<String, u64>,
) -> Vec<String> {
    let is_missed = |kind: &String| happened.get(kind).copied().unwrap_or_default() == 0;
    let missed = planned.into_iter().filter(|kind| span >= ENOUGH && is_missed(kind));
    missed.map(|kind| format!("the fault {kind} never happened")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_without_a_planned_fault_fails() {
        let planned = || ["cut-node", "one-way", "slow-link"].map(str::to_owned);
        let happened = BTreeMap::from([("cut-node".to_owned(), 3), ("slow-link".to_owned(), 0)]);
        let expected =
            ["one-way", "slow-link"].map(|kind| format!("the fault {kind} never happened"));
        assert_eq!(missed(ENOUGH, planned(), &happened), expected);
        assert!(missed(ENOUGH / 2, planned(), &happened).is_empty());
    }
}
