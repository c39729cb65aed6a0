//! Parallel commit with everything at once: dry runs that fail, fences, touches, readers of staged records,
//! writes that vanish, transactions that cross, explicit peers.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Kind, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

fn one(kind: Kind, uses: [Use; 3]) -> Script {
    Script { kind, uses, ..Script::default() }
}

/// A staged transaction, whose dry run may fail, crosses an explicit one; a reader meets the staged record; a
/// write vanishes; an owner dies.
fn mixed() -> Scenario {
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            Script { may_misfit: true, ..one(Kind::Parallel, [Use::Put, Use::Put, Use::No]) },
            Script { reversed: true, ..one(Kind::Explicit, [Use::Put, Use::Put, Use::No]) },
            one(Kind::Reader, [Use::Read, Use::No, Use::No]),
        ],
        attempts: 1,
        janitors: 1,
        budget: Budget { dirty: 1, deaths: 1, ..Budget::default() },
        death: Death::Rightly,
        readers_may_be_fooled: true,
        ..Scenario::default()
    }
}

/// The same without the death.
fn living() -> Scenario {
    Scenario { budget: Budget { dirty: 1, ..Budget::default() }, ..mixed() }
}

/// The same, with an explicit one that writes one document.
fn narrow() -> Scenario {
    let mut scenario = mixed();
    scenario.scripts[1] = one(Kind::Explicit, [Use::No, Use::Put, Use::No]);
    scenario
}

/// The same without the reader.
fn unread() -> Scenario {
    let mut scenario = mixed();
    scenario.scripts.truncate(2);
    scenario
}

/// Owners are taken for dead while they live.
fn suspected() -> Scenario {
    let mut scenario = mixed();
    scenario.scripts.truncate(2);
    Scenario { budget: Budget { dirty: 1, ..Budget::default() }, death: Death::Anytime, ..scenario }
}

/// Two staged ones cross, one write vanishes.
fn staged() -> Scenario {
    let both = Script { may_misfit: true, ..one(Kind::Parallel, [Use::Put, Use::Put, Use::No]) };
    Scenario { scripts: vec![both, Script { reversed: true, ..both }], ..suspected() }
}

/// A staged transaction and an explicit insert, after a third deleted the document of both.
fn placeholders() -> Scenario {
    Scenario {
        scripts: vec![
            one(Kind::Parallel, [Use::Put, Use::Put, Use::No]),
            one(Kind::Explicit, [Use::Insert, Use::No, Use::No]),
            one(Kind::Instant, [Use::Delete, Use::No, Use::No]),
        ],
        budget: Budget::default(),
        ..suspected()
    }
}

/// The same, with one that inserts and wants what the staged one holds: its own placeholder may stand where it has to fence.
fn own_placeholders() -> Scenario {
    let mut scenario = placeholders();
    scenario.scripts[1] = one(Kind::Explicit, [Use::Insert, Use::Put, Use::No]);
    scenario
}

/// The same, and a write vanishes.
fn placeholders_that_vanish() -> Scenario {
    Scenario { budget: Budget { dirty: 1, ..Budget::default() }, ..own_placeholders() }
}

/// A lock-free read beside a commit that may vanish.
fn fooled() -> Scenario {
    Scenario { readers_may_be_fooled: false, ..mixed() }
}

/// A staged deletion and an explicit insert of the same document.
fn deletions() -> Scenario {
    Scenario {
        scripts: vec![
            one(Kind::Parallel, [Use::Delete, Use::Put, Use::No]),
            one(Kind::Explicit, [Use::Put, Use::No, Use::No]),
        ],
        budget: Budget { dirty: 1, late: 1, ..Budget::default() },
        ..suspected()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "everything",
        cases: vec![
            Case::new(
                "staged, explicit, a read, all live",
                "1 vanishing, 1 janitor, dry runs may fail",
                living(),
                2_215_298,
            )
            .ends(),
            Case::new(
                "staged, explicit on one, a read",
                "1 vanishing, 1 dead owner, 1 janitor, dry runs may fail",
                narrow(),
                1_288_825,
            )
            .ends()
            .large(),
            Case::new(
                "staged, explicit, one dies",
                "1 vanishing, 1 dead owner, 1 janitor, dry runs may fail",
                unread(),
                309_174,
            )
            .ends(),
            Case::new(
                "a staged one and placeholders",
                "1 janitor, suspicion",
                placeholders(),
                31_885,
            )
            .ends(),
            Case::new(
                "a staged one and own placeholders",
                "1 janitor, suspicion",
                own_placeholders(),
                164_305,
            )
            .ends(),
            Case::new(
                "a staged one and own placeholders that vanish",
                "1 vanishing, 1 janitor, suspicion",
                placeholders_that_vanish(),
                1_534_389,
            )
            .ends()
            .large(),
            Case::new(
                "staged against explicit",
                "1 vanishing, 1 janitor, suspicion",
                suspected(),
                1_164_929,
            )
            .ends()
            .large(),
            Case::new(
                "staged against staged",
                "1 vanishing, 1 janitor, suspicion",
                staged(),
                3_708_460,
            )
            .ends()
            .large(),
            Case::new(
                "a staged deletion",
                "1 late, 1 vanishing, 1 janitor, suspicion",
                deletions(),
                2_311_685,
            )
            .ends()
            .large(),
        ],
        flaws: vec![
            Flaw::of(
                "a fence before the abort",
                &suspected(),
                Rule::FenceBeforeAbort,
                Shows::Wrong,
            ),
            Flaw::of(
                "past the expected version is touched as well",
                &suspected(),
                Rule::FencePastVersions,
                Shows::Wrong,
            ),
            Flaw::of(
                "every lock is touched before a staged record is committed",
                &staged(),
                Rule::TouchStagedLocks,
                Shows::Wrong,
            ),
            Flaw::of(
                "only updates and deletes of documents that exist",
                &placeholders(),
                Rule::StageNoInserts,
                Shows::Wrong,
            ),
            Flaw::of(
                "a placeholder is never touched",
                &placeholders(),
                Rule::FenceNoPlaceholder,
                Shows::Wrong,
            ),
            Flaw::of(
                "the owner decides its record before it tells",
                &suspected(),
                Rule::DecideBeforeTelling,
                Shows::Wrong,
            ),
            Flaw::new("a lock-free read may show what vanishes", fooled(), Shows::Wrong),
        ],
    }
}
