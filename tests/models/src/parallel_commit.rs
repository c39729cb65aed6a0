//! Parallel commit: staged record and locks in one bulk, two that recover, readers, fences.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Kind, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

/// Two staged transactions whose locks cross.
fn crossing() -> Scenario {
    let both =
        Script { kind: Kind::Parallel, uses: [Use::Put, Use::Put, Use::No], ..Script::default() };
    Scenario {
        exists: [true, true, false],
        scripts: vec![both, Script { reversed: true, ..both }],
        attempts: 1,
        janitors: 1,
        budget: Budget { late: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// The same, and nothing is late.
fn punctual() -> Scenario {
    Scenario { budget: Budget::default(), ..crossing() }
}

/// One staged transaction, two that recover it, two late writes.
fn two_recoverers() -> Scenario {
    Scenario {
        scripts: vec![Script { may_misfit: true, ..crossing().scripts[0] }],
        janitors: 2,
        budget: Budget { late: 2, ..Budget::default() },
        ..crossing()
    }
}

/// Two lock-free reads, one after the other, beside a staged transaction.
fn readers() -> Scenario {
    let read = |d: usize, after| {
        let mut uses = [Use::No; 3];
        uses[d] = Use::Read;
        Script { kind: Kind::Reader, uses, after, ..Script::default() }
    };
    Scenario {
        scripts: vec![crossing().scripts[0], read(0, None), read(1, Some(1))],
        budget: Budget { late: 1, ..Budget::default() },
        ..crossing()
    }
}

/// Two crossing ones with owners that live: fences must not wait.
fn fences() -> Scenario {
    Scenario {
        budget: Budget { deaths: 2, ..Budget::default() },
        death: Death::Rightly,
        ..crossing()
    }
}

/// Transactions that also read: staged, they would not validate.
fn with_reads() -> Scenario {
    let one = crossing().scripts[0];
    Scenario {
        scripts: vec![
            Script { uses: [Use::Read, Use::Put, Use::No], ..one },
            Script { uses: [Use::Put, Use::Read, Use::No], ..one },
        ],
        ..crossing()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "parallel_commit",
        cases: vec![
            Case::new("two cross", "1 janitor, suspicion", punctual(), 122_940).ends(),
            Case::new("two cross, late", "1 late, 1 janitor, suspicion", crossing(), 2_407_093)
                .large(),
            Case::new(
                "one, two recoverers",
                "2 late, 2 janitors, dry runs may fail, suspicion",
                two_recoverers(),
                312_316,
            ),
            Case::new("one, two reads", "1 late, 1 janitor, suspicion", readers(), 151_923),
            Case::new("two cross, rightly dead", "2 dead owners, 1 janitor", fences(), 29_959)
                .ends(),
        ],
        flaws: vec![
            Flaw::of(
                "a fence before the abort",
                &two_recoverers(),
                Rule::FenceBeforeAbort,
                Shows::Wrong,
            ),
            Flaw::of("fences never wait", &fences(), Rule::FenceNeverWaits, Shows::Stuck),
            Flaw::of(
                "a staged record decides nothing for a reader",
                &readers(),
                Rule::StagedDecidesNothing,
                Shows::Wrong,
            ),
            Flaw::of(
                "a reader that misses a lock reads the record again",
                &readers(),
                Rule::ReadStagedAgain,
                Shows::Wrong,
            ),
            Flaw::of(
                "the owner decides its record before it tells",
                &two_recoverers(),
                Rule::DecideBeforeTelling,
                Shows::Wrong,
            ),
            Flaw::of(
                "the owner acknowledges only if every dry run fits",
                &two_recoverers(),
                Rule::DryRunsFit,
                Shows::Wrong,
            ),
            Flaw::of(
                "only transactions without reads to validate",
                &with_reads(),
                Rule::StageNoReads,
                Shows::Wrong,
            ),
        ],
    }
}
