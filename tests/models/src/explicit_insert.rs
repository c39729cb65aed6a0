//! Explicit commits with inserts.
//!
//! A `create` carries no condition, so its duplicate can land after the document was deleted. The
//! duplicate must not bring the document back.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Kind, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

/// A transaction inserts, and another deletes the inserted document.
///
/// The first transaction also writes a document that exists.
fn insert_and_delete() -> Scenario {
    Scenario {
        exists: [false, true, false],
        scripts: vec![
            Script { uses: [Use::Insert, Use::Put, Use::No], ..Script::default() },
            Script { uses: [Use::Delete, Use::No, Use::No], ..Script::default() },
        ],
        janitors: 1,
        attempts: 1,
        budget: Budget { forks: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// A document is inserted, deleted, and inserted again by a third transaction.
fn insert_again() -> Scenario {
    Scenario {
        exists: [false; 3],
        scripts: vec![
            Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() },
            Script { uses: [Use::Delete, Use::No, Use::No], ..Script::default() },
            Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() },
        ],
        janitors: 1,
        attempts: 1,
        budget: Budget { forks: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// The same, but the deletion takes one step.
fn deleted_at_once() -> Scenario {
    let mut scenario = insert_again();
    scenario.scripts[1].kind = Kind::Instant;
    scenario
}

/// A process with a slow clock inserts a deleted document.
///
/// The deletion and the insert are close together. The new content has the smaller commit version.
fn clock_behind() -> Scenario {
    Scenario {
        exists: [true, false, false],
        scripts: vec![
            Script {
                kind: Kind::Instant,
                uses: [Use::Insert, Use::No, Use::No],
                ..Script::default()
            },
            Script { uses: [Use::Delete, Use::Insert, Use::No], ..Script::default() },
        ],
        budget: Budget { forks: 1, late: 1, dirty: 1, ..Budget::default() },
        ..insert_again()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "explicit_insert",
        cases: vec![
            Case::new("insert, delete", "1 forked create, 1 janitor", insert_and_delete(), 19_773)
                .ends(),
            Case::new(
                "insert, deleted, insert",
                "1 forked create, 1 janitor",
                deleted_at_once(),
                20_350,
            )
            .ends(),
            Case::new(
                "deleted, inserted by a clock that is behind",
                "1 forked create, 1 late, 1 vanishing, 1 janitor",
                clock_behind(),
                20_483,
            )
            .ends(),
            Case::new(
                "insert, delete, insert",
                "1 forked create, 1 janitor",
                insert_again(),
                1_150_855,
            )
            .ends()
            .large(),
        ],
        flaws: vec![
            Flaw::of(
                "a placeholder counts only at the version that the record names",
                &insert_and_delete(),
                Rule::PlaceholderVersion,
                Shows::Wrong,
            ),
            Flaw::of(
                "what was written since is told by the commit under the lock, not by a larger commit tid",
                &clock_behind(),
                Rule::WrittenSince,
                Shows::Wrong,
            ),
        ],
    }
}
