//! Short runs of the simulation, and their invariants.
//!
//! Each run checks that no acknowledged increment is lost and that no process waits for the board
//! with a lock.

use txn_hot_documents::measure::Outcome;
use txn_hot_documents::scenario::{
    Beside, by_itself, equal, faults, least, mean, most, plain, read_only, runs, server, shop,
    single_writes,
};
use txn_hot_documents::workload::{Documents, Kind, ProcessSpec};
use txn_hot_documents::world::{Setting, run};

const SEEDS: [u64; 1] = [21];

fn short(processes: Vec<ProcessSpec>) -> Setting {
    Setting { seconds: 2, ..Setting::new(processes) }
}

/// Checks throughput, fairness and the longest wait.
///
/// Throughput is compared with a single process, and fairness is the share of the slowest process.
fn assert_floor(setting: &Setting, spec: &ProcessSpec, processes: usize, floor: f64) {
    let one = runs(&equal(setting, spec, 1), &SEEDS);
    let all = runs(&equal(setting, spec, processes), &SEEDS);
    let ratio = mean(&all, Outcome::total) / mean(&one, Outcome::total);
    assert!(ratio > floor, "{processes} processes commit {ratio:.2} of one process");
    assert!(least(&all, Outcome::share) > 0.5, "a process gets less than half of another one");
    assert!(most(&all, Outcome::worst) < 2_000.0, "a process waits longer than 2 s");
}

#[test]
fn processes_commit_most_of_what_one_commits() {
    for (clients, processes, floor) in [(2, 4, 0.65), (8, 2, 0.8), (8, 16, 0.8), (32, 4, 0.8)] {
        let setting = Setting { seconds: 4, ..short(Vec::new()) };
        assert_floor(&setting, &ProcessSpec::new(1, clients), processes, floor);
    }
}

#[test]
fn processes_starve_each_other_without_the_board() {
    let setting = short(vec![ProcessSpec::new(1, 8); 4]);
    let with = runs(&setting, &SEEDS);
    let without = runs(&plain(&setting), &SEEDS);
    assert!(mean(&without, Outcome::total) < 0.3 * mean(&with, Outcome::total));
}

#[test]
fn shared_server_keeps_the_floor() {
    let setting = Setting { seconds: 4, ..server(2) };
    assert_floor(&setting, &ProcessSpec::new(3, 8), 4, 0.75);
}

#[test]
fn other_kinds_of_transactions_keep_the_floor() {
    let half = ProcessSpec { kind: Kind::ReadOnly, share: 0.5, ..ProcessSpec::new(1, 8) };
    for spec in [single_writes(8), half, by_itself(8)] {
        assert_floor(&short(Vec::new()), &spec, 4, 0.75);
    }
}

#[test]
fn wide_sets_and_collisions_keep_the_floor() {
    let documents = Documents::Wide { number: 5_000, cold: 40 };
    let wide = Setting { documents, seconds: 1, ..short(Vec::new()) };
    assert_floor(&wide, &ProcessSpec::new(1, 32), 2, 0.75);
    let mut colliding = short(Vec::new());
    colliding.engine.hash_bits = 2;
    assert_floor(&colliding, &ProcessSpec::new(1, 8), 4, 0.75);
}

#[test]
fn shop_keeps_the_floor() {
    let setting = Setting { seconds: 1, ..shop(false) };
    assert_floor(&setting, &ProcessSpec::new(1, 100), 2, 0.75);
}

#[test]
fn guests_commit_among_busy_processes() {
    for guest in [ProcessSpec::new(1, 1), read_only(1)] {
        let beside = Beside::new(vec![guest], 4, 4).measure(&SEEDS);
        assert!(beside.p99 < 30.0 * beside.alone_p99, "{beside:?}");
        assert!(beside.busy_keep > 0.65, "{beside:?}");
    }
    let slow = Beside::new(vec![ProcessSpec::new(300, 1)], 1, 30).measure(&SEEDS);
    assert!(slow.longest < 12_000.0 && slow.busy_keep > 0.6, "{slow:?}");
}

#[test]
fn faults_stop_no_process() {
    for (name, setting) in faults() {
        let all = runs(&setting, &SEEDS);
        // Process 0 survives each fault.
        assert!(mean(&all, |outcome| outcome.commits[0]) > 50.0, "{name}");
        assert!(most(&all, |outcome| outcome.longest[0]) < 2_000.0, "{name}");
    }
}

#[test]
fn uncontended_process_never_reads_the_board() {
    // Eight clients on 10,000 documents never conflict, not even in one process.
    let documents = Documents::Uniform { number: 10_000 };
    let outcome = run(&Setting { documents, ..short(vec![ProcessSpec::new(1, 8)]) });
    assert_eq!((outcome.board_looks, outcome.board_writes), (0.0, 0.0));
}

#[test]
fn one_seed_gives_one_run() {
    let setting = short(vec![ProcessSpec::new(1, 8); 3]);
    assert_eq!(run(&setting), run(&setting));
    assert_ne!(run(&setting), run(&Setting { seed: 2, ..setting.clone() }));
}
