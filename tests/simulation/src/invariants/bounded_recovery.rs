//! The number of cleanup writes is bounded.
//!
//! The bound is a constant for each lock, each open record and each dropped day.

use crate::ledger::{CleanUp, Ledger};

/// Writes for each lock and each open record.
///
/// A touch or a void, an apply, a mark, and each of these again.
const EACH: u64 = 8;
/// The number of writes of each pass in any case. These are the writes of the domain's own
/// documents, and of the entry of the process.
const PASS: u64 = 8;
/// Writes for each dropped day.
///
/// The watermark, the removed name, and each of these again.
const DAY: u64 = 4;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let clean_up = ledger.clean_up;
    let CleanUp { found, passes, dropped, .. } = clean_up;
    let most = EACH * found + PASS * (passes + 1) + DAY * dropped;
    match clean_up.written > most {
        true => vec![format!("{} writes, not {most} at most: {clean_up:?}", clean_up.written)],
        false => Vec::new(),
    }
}
