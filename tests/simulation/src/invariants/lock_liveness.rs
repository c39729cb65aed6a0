//! After the faults no document stays locked for too long.
//!
//! The limit is the attempt timeout, a lease and a few passes of a janitor.

use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let stuck = ledger.long_locks.iter();
    stuck
        .map(|lock| {
            let seconds = lock.lasted.as_secs();
            format!("{} held {} for {seconds} s and longer", lock.holder, lock.document)
        })
        .collect()
}
