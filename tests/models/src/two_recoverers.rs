//! Explicit commit with two recovering processes, while the owner pauses and wakes.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Scenario, Script, Use};
use crate::state::{Budget, who};
use crate::suite::{Case, Flaw, Shows, Suite};

/// A transaction, two processes that recover it, and late writes.
fn alone() -> Scenario {
    Scenario {
        exists: [true, false, false],
        scripts: vec![Script {
            uses: [Use::Put, Use::Insert, Use::No],
            heartbeat: true,
            ..Script::default()
        }],
        attempts: 2,
        janitors: 2,
        budget: Budget { late: 1, forks: 1, deaths: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// Two transactions over two documents, and two processes that recover both.
fn crossing() -> Scenario {
    let both = Script { uses: [Use::Put, Use::Put, Use::No], ..Script::default() };
    Scenario {
        exists: [true, true, false],
        scripts: vec![both, Script { reversed: true, ..both }],
        attempts: 1,
        budget: Budget::default(),
        ..alone()
    }
}

/// A plain client has copied the first transaction's lock or placeholder.
///
/// The copy is at a document that a second transaction wants.
fn copied(exists: bool) -> Scenario {
    let use_of_copy = if exists { Use::Put } else { Use::Insert };
    Scenario {
        exists: [true, false, exists],
        orphans: [0, 0, who(0, 0)],
        scripts: vec![
            Script { uses: [Use::Put, Use::Insert, Use::No], ..Script::default() },
            Script { uses: [Use::Put, Use::No, use_of_copy], ..Script::default() },
        ],
        attempts: 1,
        janitors: 1,
        budget: Budget { dirty: 1, ..Budget::default() },
        ..alone()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "two_recoverers",
        cases: vec![
            Case::new(
                "one transaction",
                "2 attempts, 2 janitors, 1 late, 1 forked create, 1 dead owner, heartbeats",
                alone(),
                65_568,
            )
            .ends(),
            Case::new("two transactions cross", "1 attempt, 2 janitors", crossing(), 278_168),
            Case::new("a copied lock", "1 janitor, 1 vanishing", copied(true), 221_214).ends(),
            Case::new("a copied placeholder", "1 janitor, 1 vanishing", copied(false), 219_276)
                .ends(),
        ],
        flaws: vec![
            Flaw::of(
                "a lock is void only after its holder's abort is acknowledged",
                &crossing(),
                Rule::AbortBeforeTakeOver,
                Shows::Wrong,
            ),
            Flaw::of(
                "a commit that finds its record aborted is no commit",
                &crossing(),
                Rule::AbortFlag,
                Shows::Wrong,
            ),
            Flaw::of(
                "a lock that a committed record does not name is void",
                &copied(true),
                Rule::UnnamedLockVoid,
                Shows::Stuck,
            ),
        ],
    }
}
