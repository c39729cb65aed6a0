//! A table of cases and what became of them.

use std::fmt::Write as _;

use crate::cases::Case;
use crate::stage::Outcome;

/// The lines of one case: its figures, what callers were told, and what does not hold.
#[must_use]
pub fn lines(case: &Case, outcome: &Outcome) -> String {
    let Outcome { during, acknowledged, named, .. } = outcome;
    let verdict = if outcome.violations.is_empty() { "ok" } else { "FAILED" };
    let mut text = format!(
        "{:32} {verdict:6} {during:6} of {acknowledged:6} acknowledged beside the job, {named} documents reported\n",
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

/// Violations that are shown of one case.
const VIOLATIONS: usize = 20;
