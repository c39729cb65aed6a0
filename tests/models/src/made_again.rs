//! A collection that is made again before an apply.
//!
//! The collection is dropped before.
//!
//! The new collection proves nothing about the commit, and no apply writes the commit there.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

/// A transaction writes two documents. Another inserts the first one in the new collection.
fn written() -> Scenario {
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            Script { uses: [Use::Put, Use::Put, Use::No], ..Script::default() },
            Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() },
        ],
        janitors: 1,
        attempts: 1,
        budget: Budget { made_again: 1, deaths: 1, late: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// Two transactions insert one document.
///
/// A duplicate of the placeholder may land.
fn inserted() -> Scenario {
    Scenario {
        exists: [false; 3],
        scripts: vec![
            Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() },
            Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() },
        ],
        budget: Budget { made_again: 1, forks: 1, dirty: 1, ..Budget::default() },
        ..written()
    }
}

/// A transaction deletes a document and writes another.
fn deleted() -> Scenario {
    Scenario {
        scripts: vec![
            Script { uses: [Use::Delete, Use::Put, Use::No], ..Script::default() },
            Script { uses: [Use::Insert, Use::No, Use::No], ..Script::default() },
        ],
        ..written()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    let all = "1 janitor, any owner taken for dead at any time";
    Suite {
        name: "made_again",
        cases: vec![
            Case::new("a write, and an insert into the new one", all, written(), 393_560).ends(),
            Case::new("two inserts", all, inserted(), 219_353).ends(),
            Case::new("a deletion, and an insert into the new one", all, deleted(), 492_564).ends(),
        ],
        flaws: vec![
            Flaw::of(
                "a collection that was made again does not prove that a commit was applied",
                &deleted(),
                Rule::SameCollection,
                Shows::Wrong,
            ),
            Flaw::of(
                "an owner never writes a collection that was made again",
                &inserted(),
                Rule::SameCollection,
                Shows::Wrong,
            ),
        ],
    }
}
