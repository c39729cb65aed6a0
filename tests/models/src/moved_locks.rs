//! Plain clients that rewrite or delete placeholders, as maintenance by query does.
//!
//! An owner that has applied nothing yet writes over the document, once it knows that no other
//! process has applied the commit. Any other process reports the document, and the record stays
//! open.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

/// A placeholder that a plain client rewrites.
///
/// A transaction inserts, the plain client rewrites the placeholder, and another transaction
/// deletes.
///
/// A duplicate of the placeholder may land after the deletion.
fn rewritten() -> Scenario {
    Scenario {
        exists: [false; 3],
        scripts: vec![
            Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() },
            Script { uses: [Use::Delete, Use::No, Use::No], ..Script::default() },
        ],
        janitors: 1,
        attempts: 1,
        budget: Budget { forks: 1, moved: 1, late: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// A transaction inserts and writes, and a plain client deletes its placeholder.
fn removed() -> Scenario {
    Scenario {
        exists: [false, true, false],
        scripts: vec![Script { uses: [Use::Insert, Use::Put, Use::No], ..Script::default() }],
        budget: Budget { removed: 1, forks: 1, deaths: 1, ..Budget::default() },
        ..rewritten()
    }
}

/// The same, but writes of the owner may be late or unanswered.
fn removed_and_late() -> Scenario {
    Scenario {
        scripts: vec![Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() }],
        budget: Budget { removed: 1, late: 1, dirty: 1, ..Budget::default() },
        ..rewritten()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    let all = "1 janitor, any owner taken for dead at any time";
    Suite {
        name: "moved_locks",
        cases: vec![
            Case::new("a placeholder is rewritten, and writes are late", all, rewritten(), 259_856),
            Case::new("a placeholder is deleted", all, removed(), 913),
            Case::new(
                "a placeholder is deleted, and writes are late",
                all,
                removed_and_late(),
                2_644,
            ),
        ],
        flaws: vec![
            Flaw::of(
                "a placeholder that was rewritten is not void before the record is finished",
                &rewritten(),
                Rule::MovedLock,
                Shows::Wrong,
            ),
            Flaw::of(
                "a placeholder that is gone does not show that it was applied",
                &removed(),
                Rule::MovedLock,
                Shows::Wrong,
            ),
            Flaw::of(
                "an owner locks again only if no other process has applied the commit",
                &rewritten(),
                Rule::RelockUnapplied,
                Shows::Wrong,
            ),
        ],
    }
}
