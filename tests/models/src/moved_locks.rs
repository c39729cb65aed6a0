//! Plain clients that rewrite or delete placeholders, as maintenance by query does. The owner that
//! has applied nothing yet writes over what stands there, once it knows that nobody else has
//! applied it; whoever cannot tell reports it, and the record stays open.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

/// One inserts, beside a plain client that writes its placeholder again; another deletes what was
/// inserted. A duplicate of the placeholder may land behind that.
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

/// One inserts and writes, beside a plain client that deletes its placeholder.
fn removed() -> Scenario {
    Scenario {
        exists: [false, true, false],
        scripts: vec![Script { uses: [Use::Insert, Use::Put, Use::No], ..Script::default() }],
        budget: Budget { removed: 1, forks: 1, deaths: 1, ..Budget::default() },
        ..rewritten()
    }
}

/// The same, where writes of the owner may be late or unanswered.
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
                "an owner takes its place again only if nobody else has applied it",
                &rewritten(),
                Rule::RelockUnapplied,
                Shows::Wrong,
            ),
        ],
    }
}
