//! A table of cases and their results.

use std::fmt::Write as _;

use crate::cases::Case;
use crate::stage::Outcome;

/// Returns the lines of one case: counts, errors, and violations.
#[must_use]
pub fn lines(case: &Case, outcome: &Outcome) -> String {
    let Outcome { during, acknowledged, named, .. } = outcome;
    let verdict = if outcome.violations.is_empty() { "ok" } else { "FAILED" };
    let mut text = format!(
        "{:32} {verdict:6} {during:6} of {acknowledged:6} acknowledged during the job, {named} documents reported\n",
        case.name
    );
    for line in &outcome.complaints {
        let _ = writeln!(text, "    told: {line}");
    }
    for (what, count) in &outcome.reports {
        let _ = writeln!(text, "    reported {count} times: {what}");
    }
    for violation in outcome.violations.iter().take(VIOLATIONS) {
        let _ = writeln!(text, "    VIOLATION: {violation}");
    }
    if let more @ 1.. = outcome.violations.len().saturating_sub(VIOLATIONS) {
        let _ = writeln!(text, "    and {more} more");
    }
    text
}

/// The number of violations that are shown per case.
const VIOLATIONS: usize = 20;
