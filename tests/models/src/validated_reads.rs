//! Validated reads: write skew, absent documents, read-only transactions, single writes.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Kind, Scenario, Script, Use};
use crate::suite::{Case, Flaw, Shows, Suite};

fn script(kind: Kind, uses: [Use; 3]) -> Script {
    Script { kind, uses, ..Script::default() }
}

/// Each transaction reads the document that the other one writes.
fn skew() -> Scenario {
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            script(Kind::Explicit, [Use::Read, Use::Put, Use::No]),
            script(Kind::Explicit, [Use::Put, Use::Read, Use::No]),
            script(Kind::Single, [Use::Put, Use::No, Use::No]),
        ],
        attempts: 1,
        janitors: 1,
        death: Death::Anytime,
        ..Scenario::default()
    }
}

/// The same, with a read-only transaction.
fn read_only() -> Scenario {
    Scenario {
        scripts: vec![
            script(Kind::Explicit, [Use::Read, Use::Put, Use::No]),
            script(Kind::Explicit, [Use::Put, Use::Read, Use::No]),
            script(Kind::ReadOnly, [Use::Read, Use::Read, Use::No]),
        ],
        ..skew()
    }
}

/// The documents that are read do not exist yet, or no longer.
fn absences() -> Scenario {
    Scenario {
        exists: [false, false, false],
        scripts: vec![
            script(Kind::Explicit, [Use::Read, Use::Insert, Use::No]),
            script(Kind::Explicit, [Use::Insert, Use::Read, Use::No]),
            script(Kind::ReadOnly, [Use::Read, Use::Read, Use::No]),
        ],
        ..skew()
    }
}

/// The same, but no owner is taken for dead.
fn quiet_absences() -> Scenario {
    Scenario { janitors: 0, death: Death::Rightly, ..absences() }
}

/// Exactly one of two documents exists, and they change places.
///
/// A reader reads that both are absent.
fn swaps() -> Scenario {
    let there = script(Kind::Instant, [Use::Insert, Use::Delete, Use::No]);
    let back = script(Kind::Instant, [Use::Delete, Use::Insert, Use::No]);
    Scenario {
        exists: [false, true, false],
        scripts: vec![
            there,
            Script { after: Some(0), ..back },
            Script { after: Some(1), ..there },
            script(Kind::ReadOnly, [Use::Read, Use::Read, Use::No]),
        ],
        janitors: 0,
        ..skew()
    }
}

/// A document is inserted and deleted beside writes of another.
///
/// Each change of the first document is committed with a write of the other one.
///
/// A reader reads both.
fn come_and_go() -> Scenario {
    Scenario {
        exists: [false, true, false],
        scripts: vec![
            script(Kind::Explicit, [Use::Insert, Use::Put, Use::No]),
            script(Kind::Instant, [Use::Delete, Use::Put, Use::No]),
            script(Kind::ReadOnly, [Use::Read, Use::Read, Use::No]),
        ],
        ..swaps()
    }
}

/// A younger transaction only locks reads.
///
/// Older writers take the locks over.
fn locked_reads() -> Scenario {
    let writer = script(Kind::Explicit, [Use::Put, Use::Put, Use::No]);
    let reader = script(Kind::ReadOnly, [Use::Read, Use::Read, Use::No]);
    Scenario {
        scripts: vec![
            writer,
            Script { reversed: true, ..writer },
            Script { pessimistic: true, lock_reads: true, ..reader },
        ],
        janitors: 0,
        death: Death::Rightly,
        ..skew()
    }
}

/// Two reads without a transaction claim to be a snapshot.
fn snapshot() -> Scenario {
    Scenario {
        scripts: vec![
            script(Kind::Explicit, [Use::Put, Use::Put, Use::No]),
            script(Kind::Reader, [Use::Read, Use::Read, Use::No]),
        ],
        snapshots: true,
        ..skew()
    }
}

/// A lock-free read after a caller received a commit.
fn read_after() -> Scenario {
    Scenario {
        exists: [true, true, false],
        scripts: vec![
            script(Kind::Explicit, [Use::Put, Use::Put, Use::No]),
            Script { after: Some(0), ..script(Kind::Reader, [Use::Read, Use::No, Use::No]) },
        ],
        attempts: 1,
        ..Scenario::default()
    }
}

/// A write of one document, and a transaction that locks it.
fn one_document() -> Scenario {
    Scenario {
        scripts: vec![
            script(Kind::Explicit, [Use::Put, Use::Put, Use::No]),
            script(Kind::Single, [Use::Put, Use::No, Use::No]),
        ],
        ..read_after()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    let bounds = "1 attempt, 1 janitor, any owner taken for dead at any time";
    Suite {
        name: "validated_reads",
        cases: vec![
            Case::new("write skew, and a one-document writer", bounds, skew(), 43_424),
            Case::new("write skew, and a read-only transaction", bounds, read_only(), 565_649),
            Case::new("absent documents, one may be taken for dead", bounds, absences(), 2_863_171)
                .large(),
            Case::new("absent documents", "1 attempt", quiet_absences(), 138_407).ends(),
            Case::new("a document that comes and goes", "1 attempt", come_and_go(), 1_315),
            Case::new("absent documents that change places", "1 attempt", swaps(), 98),
            Case::new("locked reads", "1 attempt", locked_reads(), 279_925),
        ],
        flaws: vec![
            Flaw::of("reads are validated", &skew(), Rule::ValidateReads, Shows::Wrong),
            Flaw::of(
                "write locks first, then validation",
                &skew(),
                Rule::ValidateAfterLocks,
                Shows::Wrong,
            ),
            Flaw::of(
                "a read of a document that another attempt holds is not valid",
                &skew(),
                Rule::ValidateHolders,
                Shows::Wrong,
            ),
            Flaw::of(
                "of several absences each is locked by a placeholder",
                &swaps(),
                Rule::LockAbsentReads,
                Shows::Wrong,
            ),
            Flaw::of(
                "an absence is verified first, then the versions",
                &come_and_go(),
                Rule::AbsenceFirst,
                Shows::Wrong,
            ),
            Flaw::of(
                "a read-only transaction waits for undecided locks, also without a record",
                &read_only(),
                Rule::ReadOnlyWaits,
                Shows::Wrong,
            ),
            Flaw::of(
                "a transaction that only locked reads verifies its locks",
                &locked_reads(),
                Rule::VerifyReadLocks,
                Shows::Wrong,
            ),
            Flaw::of(
                "a reader answers by the record of the holder",
                &read_after(),
                Rule::ReadTheRecord,
                Shows::Wrong,
            ),
            Flaw::of(
                "one document is written only if it has no lock",
                &one_document(),
                Rule::SingleSeesLocks,
                Shows::Wrong,
            ),
            Flaw::new("several verified reads are no snapshot", snapshot(), Shows::Wrong),
        ],
    }
}
