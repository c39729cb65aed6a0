//! Writes that were read and vanish when the primary crashes.
//!
//! The writes were never acknowledged.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Kind, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

/// Two writers over two documents, with locked reads.
fn writers() -> Scenario {
    let both = Script { uses: [Use::Put, Use::Put, Use::No], ..Script::default() };
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            both,
            Script { uses: [Use::Put, Use::Read, Use::No], lock_reads: true, ..both },
        ],
        attempts: 1,
        janitors: 1,
        budget: Budget { dirty: 1, ..Budget::default() },
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// Two writes may vanish.
fn twice() -> Scenario {
    Scenario {
        budget: Budget { dirty: 2, ..Budget::default() },
        scripts: vec![
            Script { uses: [Use::Put, Use::Put, Use::No], ..Script::default() },
            Script { uses: [Use::Put, Use::No, Use::No], ..Script::default() },
        ],
        ..writers()
    }
}

/// A placeholder, a deletion, and their proofs may vanish.
fn absences() -> Scenario {
    Scenario {
        exists: [false, true, false],
        scripts: vec![
            Script { uses: [Use::Insert, Use::Delete, Use::No], ..Script::default() },
            Script { uses: [Use::Delete, Use::No, Use::No], ..Script::default() },
        ],
        ..writers()
    }
}

/// A read that is validated, not locked.
///
/// The guarantee excludes this case.
fn validated() -> Scenario {
    Scenario {
        scripts: vec![
            Script { uses: [Use::Put, Use::No, Use::No], kind: Kind::Single, ..Script::default() },
            Script { uses: [Use::Read, Use::Put, Use::No], ..Script::default() },
        ],
        ..writers()
    }
}

/// A lock-free read of a commit that may vanish.
///
/// The guarantee excludes this case, too.
fn lock_free() -> Scenario {
    Scenario {
        scripts: vec![
            Script { uses: [Use::Put, Use::Put, Use::No], ..Script::default() },
            Script { kind: Kind::Reader, uses: [Use::Read, Use::No, Use::No], ..Script::default() },
        ],
        ..writers()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    let one = "1 vanishing write, 1 janitor, any owner taken for dead at any time";
    Suite {
        name: "vanishing_writes",
        cases: vec![
            Case::new("two writers, locked reads", one, writers(), 265_388).ends(),
            Case::new("two writers, twice", "2 vanishing writes, 1 janitor", twice(), 129_557),
            Case::new("inserts and deletes", one, absences(), 23_237).ends(),
        ],
        flaws: vec![
            Flaw::of(
                "an aborted record is touched before its locks are void",
                &writers(),
                Rule::TouchAborted,
                Shows::Wrong,
            ),
            Flaw::of(
                "a committed record is touched before it is applied",
                &writers(),
                Rule::TouchCommitted,
                Shows::Wrong,
            ),
            Flaw::of("what seems applied is touched", &writers(), Rule::TouchApplied, Shows::Wrong),
            Flaw::of(
                "what is gone is proven to be absent",
                &absences(),
                Rule::ProveAbsence,
                Shows::Wrong,
            ),
            Flaw::of(
                "an own lock that was not acknowledged is touched",
                &writers(),
                Rule::LockAcknowledged,
                Shows::Wrong,
            ),
            Flaw::of(
                "an own commit that was not acknowledged is touched",
                &writers(),
                Rule::CommitSettled,
                Shows::Wrong,
            ),
            Flaw::of(
                "finished only when every write of the apply was acknowledged",
                &writers(),
                Rule::ApplyAcknowledged,
                Shows::Wrong,
            ),
            Flaw::new(
                "a validated read is safe only if what was read does not vanish",
                validated(),
                Shows::Wrong,
            ),
            Flaw::new("a lock-free read may show what vanishes", lock_free(), Shows::Wrong),
        ],
    }
}
