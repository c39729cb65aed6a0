//! Wound-wait: two or three transactions that lock in any order.
//!
//! The end can be reached from every state, and the oldest transaction always commits.

use txn_protocol::rule::Rule;

use crate::scenario::{Death, Scenario, Script, Use};
use crate::state::Budget;
use crate::suite::{Case, Flaw, Shows, Suite};

fn puts(uses: [Use; 3]) -> Script {
    Script { uses, ..Script::default() }
}

/// Two transactions lock the same two documents in opposite orders.
fn two() -> Scenario {
    let both = puts([Use::Put, Use::Put, Use::No]);
    Scenario {
        exists: [true, true, false],
        scripts: vec![both, Script { reversed: true, ..both }],
        attempts: 2,
        budget: Budget { late: 1, ..Budget::default() },
        oldest_commits: true,
        ..Scenario::default()
    }
}

/// The ring with locks at each read.
///
/// Each transaction holds a document and wants the next.
fn ring_at_reads() -> Scenario {
    let mut scenario = ring();
    for script in &mut scenario.scripts {
        script.pessimistic = true;
    }
    scenario.scripts[2].reversed = true;
    scenario
}

/// Two transactions lock at each read.
///
/// Each transaction may release locks and take them again.
fn giving_back() -> Scenario {
    let mut scenario = two();
    for script in &mut scenario.scripts {
        (script.pessimistic, script.gives_back) = (true, true);
    }
    scenario
}

/// As [`giving_back`], but either owner may be taken for dead.
///
/// The owner may be taken for dead at any time.
fn giving_back_unjustly_dead() -> Scenario {
    Scenario { janitors: 1, death: Death::Anytime, oldest_commits: false, ..giving_back() }
}

/// Three transactions in a ring, each with two of three documents.
fn ring() -> Scenario {
    Scenario {
        exists: [true; 3],
        scripts: vec![
            puts([Use::Put, Use::Put, Use::No]),
            puts([Use::No, Use::Put, Use::Put]),
            puts([Use::Put, Use::No, Use::Put]),
        ],
        attempts: 2,
        oldest_commits: true,
        ..Scenario::default()
    }
}

/// The oldest transaction reads what the other two write.
///
/// The oldest transaction writes what the other two read.
fn readers() -> Scenario {
    Scenario {
        scripts: vec![
            puts([Use::Read, Use::Put, Use::No]),
            Script { lock_reads: true, ..puts([Use::Put, Use::Read, Use::No]) },
            puts([Use::Put, Use::Put, Use::No]),
        ],
        exists: [true, true, false],
        ..ring()
    }
}

/// The model.
#[must_use]
pub fn suite() -> Suite {
    Suite {
        name: "wound_wait",
        cases: vec![
            Case::new("two cross", "2 attempts, 1 late", two(), 44_558).ends(),
            Case::new(
                "two cross, and give locks back",
                "2 attempts, 1 late",
                giving_back(),
                22_792,
            )
            .ends(),
            Case::new(
                "two cross, give locks back, taken for dead",
                "2 attempts, 1 late, 1 janitor",
                giving_back_unjustly_dead(),
                952_147,
            )
            .ends()
            .large(),
            Case::new("three in a ring, locks at reads", "2 attempts", ring_at_reads(), 74_778)
                .ends(),
            Case::new("three in a ring", "2 attempts", ring(), 1_094_780).ends().large(),
            Case::new("readers and writers", "2 attempts", readers(), 1_768_557).ends().large(),
        ],
        flaws: vec![
            Flaw::of(
                "a lock is taken only over the content that was read",
                &two(),
                Rule::LockWhatWasRead,
                Shows::Wrong,
            ),
            Flaw::of("an older one wounds a younger one", &two(), Rule::WoundYounger, Shows::Stuck),
            Flaw::of(
                "a lock is replaced only after its holder's abort is acknowledged",
                &two(),
                Rule::AbortBeforeTakeOver,
                Shows::Wrong,
            ),
            Flaw::of(
                "an apply touches documents that were locked since, and waits for no holder",
                &ring_at_reads(),
                Rule::TouchKeepsLock,
                Shows::Stuck,
            ),
        ],
    }
}
