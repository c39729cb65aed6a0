//! Runs of seeds hold the invariants and replay exactly.
//!
//! `TXN_SIMULATION_SEED=7` replays one run; `TXN_SIMULATION_SEEDS=5000` runs more seeds.

use txn_protocol::rule::Rules;
use txn_simulation::{
    Coverage, Extent, Recording, Troubles, campaign, run, run_recorded, run_twice,
};

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn both_runs_of_each_seed_are_equal() {
    if let Some(seed) = from_environment("TXN_SIMULATION_SEED") {
        let (result, log) =
            run_recorded(seed, Troubles::default(), &Rules::all(), Recording::Lines);
        assert!(result.violations.is_empty(), "{}\n{result:#?}", log.join("\n"));
        return;
    }
    let seeds = from_environment("TXN_SIMULATION_SEEDS").unwrap_or(200);
    let result =
        campaign(&Extent::Seeds(0..seeds), |seed| run_twice(seed, Troubles::default()), |_| {});
    for failed in &result.failed {
        eprintln!("TXN_SIMULATION_SEED={}: {:#?}", failed.seed, failed.violations);
    }
    assert!(result.failed.is_empty(), "{} runs failed", result.failed.len());
    assert_eq!(result.worlds, seeds);
    // A run without events proves nothing.
    let counts = &result.counts;
    assert!(counts.acknowledged > 10 * seeds, "{counts:?}");
    assert!(counts.recoveries > 0 && counts.wounds > 0 && counts.drops > 0, "{counts:?}");
    assert!(counts.settled_committed > 0 && counts.settled_aborted > 0, "{counts:?}");
    let zeros = Coverage::of(counts).zeros.into_iter();
    let never: Vec<String> = zeros.filter(|zero| zero.starts_with("fault: ")).collect();
    assert!(never.is_empty(), "never injected: {never:?}");
}

/// Seeds that failed once, with the switches that they had.
#[test]
fn formerly_failing_seeds_hold() {
    for seed in [
        86, 639, 1195, 3220, 103_674, 132_436, 143_034, 157_053, 182_050, 193_472, 346_222,
        367_154, 413_857,
    ] {
        assert_eq!(run(seed, Troubles::NONE).violations, Vec::<String>::new(), "seed {seed}");
    }
    let groups = Troubles { groups: true, ..Troubles::NONE };
    for seed in [6_003_907, 7_001_937] {
        assert_eq!(run(seed, groups).violations, Vec::<String>::new(), "seed {seed}");
    }
    for seed in [175, 9_100_038, 9_100_264, 9_100_265] {
        let troubles = Troubles { made_again: false, server_time: false, ..Troubles::all() };
        let violations = run(seed, troubles).violations;
        assert_eq!(violations, Vec::<String>::new(), "seed {seed}");
    }
}

/// The digest covers the log.
///
/// A digest that ignored the log would be the one without a recording.
#[test]
fn digests_differ_by_seed_and_by_log() {
    let troubles = Troubles::all();
    let digest =
        |seed| run_recorded(seed, troubles, &Rules::all(), Recording::Digest).0.fingerprint;
    assert_ne!(digest(1), digest(2));
    assert_ne!(digest(1), run(1, troubles).fingerprint);
}
