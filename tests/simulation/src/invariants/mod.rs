//! The invariants of every run, one in each file.

mod acknowledged;
mod all_or_nothing;
mod bounded_recovery;
mod committed_reads;
mod exact_ledger;
mod held_up;
mod lock_liveness;
mod lost_updates;
mod money;
mod order;
mod pairs;
mod past;
mod resurrection;
mod the_living;
mod verified_reads;
mod version_counts;

use crate::ledger::Ledger;

/// Checks one invariant, and returns a message for each violation.
type Check = fn(&Ledger) -> Vec<String>;

/// Every invariant with its name.
const ALL: [(&str, Check); 16] = [
    ("acknowledged", acknowledged::check),
    ("all or nothing", all_or_nothing::check),
    ("bounded recovery", bounded_recovery::check),
    ("committed reads", committed_reads::check),
    ("exact ledger", exact_ledger::check),
    ("held up", held_up::check),
    ("lock liveness", lock_liveness::check),
    ("lost updates", lost_updates::check),
    ("money", money::check),
    ("order", order::check),
    ("pairs", pairs::check),
    ("past", past::check),
    ("resurrection", resurrection::check),
    ("the living", the_living::check),
    ("verified reads", verified_reads::check),
    ("version counts", version_counts::check),
];

/// Every violation of every invariant, with its name.
#[must_use]
pub fn violations(ledger: &Ledger) -> Vec<String> {
    let of = |(name, check): (&'static str, Check)| {
        check(ledger).into_iter().map(move |what| format!("{name}: {what}"))
    };
    ALL.into_iter().flat_map(of).collect()
}
