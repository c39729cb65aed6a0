//! Writes that are applied and answered with a refusal.
//!
//! Inside the server an item was sent again, and the answer is that of its last try. A refusal of
//! one item tells no more than a missing answer.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Kind, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

/// Two transactions over two documents; one of them also inserts.
///
/// Any write may be refused: a lock, a heartbeat, a commit, an abort, an apply, a finish, a void.
fn crossing() -> Scenario {
    let both = Script { uses: [Use::Put, Use::Put, Use::No], ..Script::default() };
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            Script { uses: [Use::Put, Use::Put, Use::Insert], ..both },
            Script { reversed: true, ..both },
        ],
        janitors: 1,
        attempts: 1,
        budget: Budget { refused: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// A transaction with heartbeats, and more refusals.
fn alone() -> Scenario {
    Scenario {
        exists: [true, false, false],
        scripts: vec![Script {
            uses: [Use::Put, Use::Insert, Use::No],
            heartbeat: true,
            ..Script::default()
        }],
        attempts: 2,
        budget: Budget { refused: 2, late: 1, deaths: 1, ..Budget::default() },
        ..crossing()
    }
}

/// A transaction finds a changed document after a refused lock.
///
/// The refused lock was that of another document.
///
/// Only the owner can remove that lock.
fn changed() -> Scenario {
    Scenario {
        scripts: vec![
            Script { uses: [Use::Put, Use::Put, Use::No], ..Script::default() },
            Script { kind: Kind::Instant, uses: [Use::No, Use::Put, Use::No], ..Script::default() },
        ],
        janitors: 0,
        tidy: true,
        death: Death::Rightly,
        ..crossing()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "refused_writes",
        cases: vec![
            Case::new("two cross, an insert", "1 refused, 1 janitor", crossing(), 555_733)
                .ends()
                .large(),
            Case::new(
                "one transaction",
                "2 attempts, 1 janitor, 2 refused, 1 late, 1 dead owner, heartbeats",
                alone(),
                15_294,
            )
            .ends(),
            Case::new("one finds a document changed", "1 refused", changed(), 110).ends(),
        ],
        flaws: vec![
            Flaw::of(
                "a commit that was refused may have been carried out",
                &alone(),
                Rule::RefusalInDoubt,
                Shows::Wrong,
            ),
            Flaw::of(
                "a lock that was refused is in doubt",
                &changed(),
                Rule::RefusalInDoubt,
                Shows::Stuck,
            ),
        ],
    }
}
