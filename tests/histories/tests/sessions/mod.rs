//! Random overlapping transactions, step by step, against a sequential reference.
//!
//! A state machine begins transactions in two processes, steps through them in any order, commits them, rolls them
//! back, lets processes die (also in the middle of a commit) and janitors pass. What a step comes to is not predicted,
//! for who waits for whom and who is wounded is the engine's business. But every answer is held against a map of what
//! is committed, in which one commit follows the other:
//!
//! - what committed had read what the map held at that moment, and its writes go into the map, whole;
//! - whatever else a commit is told changes nothing, then or later; what is unknown is asked for;
//! - a transaction that nobody was beside gets through;
//! - after every step a reader without locks sees the map, and in the end nothing is left over.
//!
//! It complements `crates/txn-core/tests/serial_equivalence.rs`, where closures run concurrently and are run again:
//! here the schedule itself is random, with every kind of write, and shrinks to the shortest one that fails.

mod ledger;
mod machine;
mod processes;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;
use proptest_state_machine::prop_state_machine;

use machine::Sessions;

/// Failures are kept beside the test, are part of the repository, and are run first.
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
