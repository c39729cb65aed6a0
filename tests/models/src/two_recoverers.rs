//! Explicit commit, recovered by two parties while its owner lives, pauses and wakes.

use crate::scenario::{Broken, Death, Scenario, Script, Use};
use crate::suite::{Case, Flaw, Shows, Suite};
use crate::world::Budget;

/// One transaction, two that recover it, writes that are late.
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

/// Two transactions over two documents, and two that recover both.
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
        ],
        flaws: vec![Flaw::of(
            "a lock is void only after its holder's abort is acknowledged",
            &crossing(),
            Broken::TakeOverUndecided,
            Shows::Wrong,
        )],
    }
}
