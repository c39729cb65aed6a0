//! Parallel commit with everything at once: dry runs that fail, fences, touches, readers of staged records,
//! writes that vanish, transactions that cross, explicit peers.

use crate::scenario::{Broken, Death, Kind, Scenario, Script, Use};
use crate::suite::{Case, Flaw, Shows, Suite};
use crate::world::Budget;

fn one(kind: Kind, uses: [Use; 3]) -> Script {
    Script { kind, uses, ..Script::default() }
}

/// A staged and an explicit transaction cross; a reader; one write is late, one vanishes.
fn mixed() -> Scenario {
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            Script { may_misfit: true, ..one(Kind::Parallel, [Use::Put, Use::Put, Use::No]) },
            Script { reversed: true, ..one(Kind::Explicit, [Use::Put, Use::Put, Use::No]) },
        ],
        attempts: 1,
        janitors: 1,
        budget: Budget { dirty: 1, ..Budget::default() },
        death: Death::Anytime,
        skewed: true,
        ..Scenario::default()
    }
}

/// The same with a reader.
fn with_reader() -> Scenario {
    let mut scenario = mixed();
    scenario.scripts.push(one(Kind::Reader, [Use::Read, Use::No, Use::No]));
    scenario.budget = Budget { dirty: 1, ..Budget::default() };
    scenario
}

/// Two staged ones cross, one write vanishes.
fn staged() -> Scenario {
    let both = Script { may_misfit: true, ..one(Kind::Parallel, [Use::Put, Use::Put, Use::No]) };
    Scenario {
        scripts: vec![both, Script { reversed: true, ..both }],
        budget: Budget { dirty: 1, ..Budget::default() },
        ..mixed()
    }
}

/// A staged deletion and an explicit insert of the same document.
fn deletions() -> Scenario {
    Scenario {
        scripts: vec![
            one(Kind::Parallel, [Use::Delete, Use::Put, Use::No]),
            one(Kind::Explicit, [Use::Put, Use::No, Use::No]),
        ],
        budget: Budget { dirty: 1, late: 1, ..Budget::default() },
        skewed: false,
        ..mixed()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "everything",
        cases: vec![
            Case::new("staged against explicit", "1 vanishing, 1 janitor", mixed(), 0),
            Case::new("staged, explicit, a read", "1 vanishing, 1 janitor", with_reader(), 0),
            Case::new("staged against staged", "1 vanishing, 1 janitor", staged(), 0),
            Case::new("a staged deletion", "1 late, 1 vanishing, 1 janitor", deletions(), 0),
        ],
        flaws: vec![
            Flaw::of("a fence before the abort", &mixed(), Broken::NoFence, Shows::Wrong),
            Flaw::of(
                "past the expected version is touched as well",
                &mixed(),
                Broken::PastIsFenced,
                Shows::Wrong,
            ),
            Flaw::of(
                "every lock is touched before a staged record is committed",
                &staged(),
                Broken::CommitSeenLocks,
                Shows::Wrong,
            ),
            Flaw::of("a placeholder is never touched", &deletions(), Broken::FencePlaceholder, Shows::Wrong),
            Flaw::of("the owner decides its record before it tells", &mixed(), Broken::TellFirst, Shows::Wrong),
        ],
    }
}
