//! Random overlapping transactions, step by step, against a sequential reference.
//!
//! A state machine begins transactions in two processes, steps through them in any order, commits
//! them and rolls them back. Processes die, also in the middle of a commit, and janitors pass. The
//! test does not predict the result of a step, because waits and wounds are decisions of the
//! engine. Every answer is compared with a map of the committed content, in which one commit
//! follows the other:
//!
//! - A committed transaction had read the content of the map at that moment. All its writes go into
//!   the map.
//! - A commit with any other answer changes nothing, then or later. An unknown outcome is looked
//!   up.
//! - A transaction without concurrent transactions commits.
//! - After every step a reader without locks sees the map, and in the end no work is left.
//!
//! `crates/txn-core/tests/commit/serial_equivalence.rs` runs closures concurrently, with retries.
//! In this test the schedule itself is random, has every kind of write, and shrinks to the shortest
//! failing schedule.

mod ledger;
mod machine;
mod processes;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;
use proptest_state_machine::prop_state_machine;

use machine::Sessions;

/// The file of failures, which is a part of the repository. Its cases run first.
const REGRESSIONS: &str = "tests/sessions/sessions.proptest-regressions";

fn settings() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let kept = Box::new(FileFailurePersistence::Direct(REGRESSIONS));
    ProptestConfig {
        failure_persistence: Some(kept),
        ..ProptestConfig::with_cases(cases.unwrap_or(150))
    }
}

prop_state_machine! {
    #![proptest_config(settings())]

    fn random_sessions(sequential 1..40 => Sessions);
}

#[test]
fn sessions_are_equivalent_to_a_sequence() {
    random_sessions();
    let tally = processes::tally();
    assert!(tally.committed > tally.refused, "most get through: {tally:?}");
    assert!(tally.refused > 0 && tally.unknown > 0, "all endings occur: {tally:?}");
}
