//! The bar for the generators.
//!
//! Each fault, pair of faults, rule and rare branch must be reached.
//!
//! A campaign that never reaches a fault proves nothing about the fault.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use txn_protocol::rule::{Rule, Rules};

use crate::counts::Counts;

/// The number of runs from which on each zero is a failure.
///
/// In 1,296 runs the rarest mark, `holder_of_a_dropped_day`, was hit once.
pub const ENOUGH_RUNS: u64 = 10_000;

/// Rare branches of the engine that the simulation must reach.
pub const MARKS: [&str; 22] = [
    "commit_beside_an_uncertain_lock",
    "commit_refused_for_certain",
    "commit_to_a_collection_made_again",
    "day_with_an_open_record_stays",
    "dead_holder_with_a_record",
    "dead_holder_without_a_record",
    "deletion_on_record",
    "entries_of_dead_processes_are_dropped",
    "foreign_commit_rolled_forward",
    "handoff_given_up",
    "help_ends_at_a_contended_document",
    "holder_of_a_dropped_day",
    "janitor_lifts_blocks",
    "lock_that_no_record_names",
    "locks_are_released_for_the_board",
    "lost_lock_found_again",
    "member_was_overwritten_by_a_later_one",
    "members_evicted",
    "old_read_of_a_single_write",
    "refused_lock_leaves_group",
    "wound_seen_at_commit",
    "wound_seen_while_waiting",
];

/// Rare branches that the simulation does not reach, with the reason.
pub const UNREACHED_MARKS: [(&str, &str); 13] = [
    ("committed_record_was_removed", "no plain client writes records"),
    ("committed_record_was_replaced", "no plain client writes records"),
    ("past_of_an_unreadable_head_stays", "history is kept longer than a run"),
    ("past_without_a_head_stays", "history is kept longer than a run"),
    ("placeholder_was_filled", "no plain client writes placeholders"),
    ("plain_document_is_set_by_a_record", "transactions write all documents"),
    ("reader_leaves_the_queue", "few transactions wait in a queue"),
    ("reader_starts_again_where_others_are_in_doubt", "few groups with readers fail in doubt"),
    ("too_many_wait_already", "a process runs fewer transactions than its bound"),
    ("unapplied_participant_relocked", "no plain client deletes placeholders"),
    ("unclear_participant_reported", "no plain client deletes placeholders"),
    ("version_of_uncommitted_content", "no client asks for versions"),
    ("waited_for_a_place_in_vain", "a process runs fewer transactions than its bound"),
];

/// Kinds of faults that no run has, with the reason.
pub const UNUSED_FAULTS: [(&str, &str); 1] =
    [("hidden", "the simulated server hides documents from scans")];

/// Pairs of faults that no run has, with the reason.
pub const APART: [([&str; 2], &str); 3] = [
    (["collections out of reach", "indices lost"], "the annex of a run has one fate"),
    (["collections out of reach", "indices made again"], "the annex of a run has one fate"),
    (["indices lost", "indices made again"], "the annex of a run has one fate"),
];

thread_local! {
    /// The hits of the marks whose guards were dropped in this thread.
    static HITS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Runs `work` in this thread, and returns the hits of each mark.
pub(crate) fn with_marks<T>(work: impl FnOnce() -> T) -> (T, BTreeMap<&'static str, u64>) {
    HITS.take();
    let note = |_, hits: usize, mark| {
        HITS.with_borrow_mut(|all| *all.entry(mark).or_default() += hits as u64);
    };
    let unreached = UNREACHED_MARKS.iter().map(|(mark, _)| *mark);
    let marks = MARKS.into_iter().chain(unreached);
    let mut guards: Vec<_> =
        marks.map(|mark| cov_mark::__rt::Guard::new(mark, None, note)).collect();
    let done = work();
    // A guard must be the last one of its thread when it is dropped.
    while guards.pop().is_some() {}
    (done, HITS.take())
}

/// Returns how often the engine asked for each rule.
pub(crate) fn asked(rules: &Rules) -> BTreeMap<Rule, u64> {
    Rule::ALL.iter().map(|rule| (*rule, rules.asked_for(*rule))).collect()
}

/// The table of a campaign, and its zeros.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Each subject with its number of runs or times.
    lines: Vec<(String, u64)>,
    /// The subjects that were not reached, and need to be.
    pub zeros: Vec<String>,
}

impl Coverage {
    /// Returns the coverage of a campaign.
    #[must_use]
    pub fn of(counts: &Counts) -> Self {
        let mut coverage = Self::default();
        let is_used = |kind: &str| UNUSED_FAULTS.iter().all(|(unused, _)| *unused != kind);
        let faults: Vec<_> = counts.faults.iter().filter(|(kind, _)| is_used(kind)).collect();
        for (kind, times) in &faults {
            coverage.add(format!("fault: {kind}"), **times);
        }
        let mut rarest = None;
        for (at, (one, _)) in faults.iter().enumerate() {
            for (other, _) in &faults[at + 1..] {
                if APART.iter().any(|(pair, _)| pair == &[**one, **other]) {
                    continue;
                }
                let runs = counts.pairs.get(&(*one, *other)).copied().unwrap_or_default();
                if runs == 0 {
                    coverage.zeros.push(format!("faults in one run: {one}, {other}"));
                }
                if rarest.as_ref().is_none_or(|(least, _)| runs < *least) {
                    rarest = Some((runs, format!("rarest pair: {one}, {other}")));
                }
            }
        }
        coverage.lines.extend(rarest.map(|(runs, pair)| (pair, runs)));
        for rule in Rule::ALL {
            let times = counts.asked.get(rule).copied().unwrap_or_default();
            // The engine need not ask for a rule without a mutation.
            match rule.shown_by().has_mutation() {
                true => coverage.add(format!("rule: {rule}"), times),
                false => coverage.lines.push((format!("rule: {rule} (not expected)"), times)),
            }
        }
        for mark in MARKS {
            coverage.add(format!("mark: {mark}"), counts.marks.get(mark).copied().unwrap_or(0));
        }
        for (mark, _) in UNREACHED_MARKS {
            let times = counts.marks.get(mark).copied().unwrap_or(0);
            coverage.lines.push((format!("mark: {mark} (not expected)"), times));
        }
        coverage
    }

    /// Returns why a campaign of this many runs is below the bar.
    ///
    /// A short campaign need not reach everything, unless the bar is `required` of it.
    #[must_use]
    pub fn shortfalls(&self, runs: u64, is_required: bool) -> Vec<String> {
        match runs >= ENOUGH_RUNS {
            true => self.zeros.clone(),
            false if is_required => vec![format!("{runs} runs are fewer than {ENOUGH_RUNS}")],
            false => Vec::new(),
        }
    }

    fn add(&mut self, subject: String, times: u64) {
        if times == 0 {
            self.zeros.push(subject.clone());
        }
        self.lines.push((subject, times));
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (subject, times) in &self.lines {
            writeln!(f, "{subject:<68}{times:>12}")?;
        }
        self.zeros.iter().try_for_each(|subject| writeln!(f, "NOT REACHED {subject}"))
    }
}
