//! No document stays locked longer than the transaction limit and a lease once everybody who may act has a server to
//! talk to.

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
