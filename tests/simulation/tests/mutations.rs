//! Leaves each rule of the protocol out, which some run must detect.

use txn_protocol::rule::Rule;
use txn_simulation::schedules::{OF_BAD_WORLDS, OF_RULES};
use txn_simulation::{Noticed, Troubles, catch, catch_by_seed, catch_in};

/// The run that detects an omission.
#[derive(Clone, Copy)]
enum By {
    Seed(u64),
    Schedule(&'static str),
}

use By::{Schedule, Seed};

/// The run that detects the omission of each rule.
///
/// If the engine or the simulation has changed, the test tries other runs.
const NOTICED_BY: &[(Rule, By)] = &[
    (Rule::LockWhatWasRead, Seed(1)),
    (Rule::LockAcknowledged, Seed(4)),
    (Rule::AbortBeforeTakeOver, Seed(0)),
    (Rule::AbortFlag, Schedule("an abort that vanishes")),
    (Rule::CommitSettled, Seed(8)),
    (Rule::ValidateReads, Schedule("an absence that ends and begins")),
    (Rule::ValidateAfterLocks, Seed(315)),
    (Rule::ValidateHolders, Seed(68)),
    (Rule::ReadOnlyWaits, Schedule("a reader beside a late commit")),
    (Rule::LockAbsentReads, Schedule("absences that change places")),
    (Rule::VersionByServer, Seed(1)),
    (Rule::VerifyReadLocks, Seed(1)),
    (Rule::PlaceholderVersion, Seed(25)),
    (Rule::MovedLock, Schedule("a placeholder that is rewritten")),
    (Rule::RelockUnapplied, Schedule("an insert that is deleted behind its owner")),
    (Rule::SameCollection, Schedule("an index that is made again")),
    (Rule::WrittenSince, Seed(678)),
    (Rule::ApplyAcknowledged, Seed(809)),
    (Rule::SettleSingle, Seed(1)),
    (Rule::SingleSeesLocks, Seed(0)),
    (Rule::MissingIsNotGone, Seed(5)),
    (Rule::WoundYounger, Schedule("an abort that vanishes")),
    (Rule::TouchCommitted, Schedule("a commit that vanishes")),
    (Rule::TouchAborted, Schedule("an abort that vanishes")),
    (Rule::ProveAbsence, Schedule("a deletion that vanishes")),
    (Rule::TouchApplied, Schedule("a write that vanishes")),
    (Rule::TouchOwnCommit, Schedule("an own commit that vanishes")),
    (Rule::TouchLaterCommit, Schedule("a later commit that vanishes")),
    (Rule::KeepInDoubt, Schedule("an own commit that is written over")),
    (Rule::AbsenceFirst, Schedule("an absence that ends and begins")),
    (Rule::ReadTheRecord, Schedule("what a dead owner committed")),
    (Rule::TouchGone, Schedule("a watermark that vanishes")),
    (Rule::WatermarkBeforeBlock, Schedule("a commit behind a lifted block")),
    (Rule::LiftSettles, Schedule("a commit behind a late lift")),
    (Rule::DroppedThrough, Schedule("a commit while its day is dropped")),
    (Rule::DropOnlyResolved, Schedule("a commit while its day is dropped")),
    (Rule::BlockBeforeDrop, Schedule("a commit while its day is dropped")),
    (Rule::RefusalInDoubt, Schedule("a refusal of what was applied")),
    (Rule::UnnamedLockVoid, Schedule("a lock that was copied")),
];

/// The number of seeds to try if the known one detects nothing.
const TRIES: u64 = 6_000;

/// The switches for a rule: none, except those that it is about.
fn troubles(rule: Rule) -> Troubles {
    let by_time = rule == Rule::VersionByServer;
    Troubles { past: by_time, server_time: by_time, ..Troubles::NONE }
}

fn noticed(rule: Rule) -> Option<Noticed> {
    let (_, by) = NOTICED_BY.iter().find(|(known, _)| *known == rule)?;
    let known = match by {
        Seed(seed) => catch_by_seed(rule, *seed..seed + 1, troubles(rule)),
        Schedule(name) => {
            let mut schedules = OF_RULES.into_iter().chain(OF_BAD_WORLDS);
            catch_in(rule, schedules.find(|(known, _)| known == name)?)
        }
    };
    known.or_else(|| catch(rule, 0..TRIES, troubles(rule)))
}

#[test]
fn every_omitted_rule_is_detected() {
    let mut gaps = Vec::new();
    for rule in Rule::ALL.iter().filter(|rule| rule.shown_by().has_mutation()) {
        match noticed(*rule) {
            Some(Noticed { by, asked: 0, .. }) => {
                gaps.push(format!("{by} fails without {rule}, and never asks for it"));
            }
            Some(Noticed { by, violations, asked }) => {
                println!("{rule}: {by}, asked {asked} times: {}", violations[0]);
            }
            None => gaps.push(format!("no run detects the omission of {rule}")),
        }
    }
    assert!(gaps.is_empty(), "{}", gaps.join("\n"));
}

#[test]
fn table_lists_each_mutation_once() {
    let mut table: Vec<Rule> = NOTICED_BY.iter().map(|(rule, _)| *rule).collect();
    table.sort_unstable();
    let mutated = Rule::ALL.iter().copied().filter(|rule| rule.shown_by().has_mutation());
    assert_eq!(table, mutated.collect::<Vec<_>>());
}
