//! The bar for the generators of the simulation.

use std::collections::BTreeSet;
use std::path::Path;

use txn_simulation::coverage::{ENOUGH_RUNS, MARKS, UNREACHED_MARKS};
use txn_simulation::{Campaign, Coverage, Extent, Troubles, campaign, run};

/// Adds the marks in the sources of a folder.
fn add_marks(folder: &Path, marks: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_marks(&path, marks);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source");
        let after = text.split("cov_mark::hit!(").skip(1);
        marks.extend(after.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
}

#[test]
fn bar_names_each_mark_of_the_engine() {
    let mut marks = BTreeSet::new();
    add_marks(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/txn-core/src"), &mut marks);
    let named = MARKS.into_iter().chain(UNREACHED_MARKS.map(|(mark, _)| mark));
    let named: Vec<String> = named.map(str::to_owned).collect();
    assert_eq!(named.len(), marks.len(), "each mark is in one list");
    assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), marks);
}

#[test]
fn campaign_without_faults_is_below_the_bar() {
    let seeds = Extent::Seeds(0..2);
    let result: Campaign = campaign(&seeds, |seed| run(seed, Troubles::NONE), |_| {});
    assert!(result.counts.asked.values().any(|times| *times > 0));
    assert!(result.counts.pairs.values().all(|runs| *runs <= 2) && ENOUGH_RUNS > 2);
    let zeros = Coverage::of(&result.counts).zeros;
    for zero in ["fault: outages", "faults in one run: outages, primaries crashed"] {
        assert!(zeros.iter().any(|one| one == zero), "{zeros:?}");
    }
}

#[test]
fn short_campaign_fails_if_the_bar_is_required() {
    let coverage = Coverage::of(&Campaign::default().counts);
    assert!(!coverage.zeros.is_empty());
    assert!(coverage.shortfalls(ENOUGH_RUNS - 1, false).is_empty());
    assert_eq!(coverage.shortfalls(ENOUGH_RUNS - 1, true), ["9999 runs are fewer than 10000"]);
    assert_eq!(coverage.shortfalls(ENOUGH_RUNS, false), coverage.zeros);
}

#[test]
fn marks_are_counted_in_each_run() {
    let seeds = Extent::Seeds(0..10);
    let marks = campaign(&seeds, |seed| run(seed, Troubles::all()), |_| {}).counts.marks;
    assert!(marks.values().filter(|hits| **hits > 0).count() >= 3, "{marks:?}");
    let again = campaign(&seeds, |seed| run(seed, Troubles::all()), |_| {}).counts.marks;
    assert_eq!(marks, again);
}
