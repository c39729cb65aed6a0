//! Each guard of the protocol is switched off in turn, and something must notice.

use txn_protocol::guard::Guard;
use txn_simulation::{Troubles, catch};

/// Seeds that notice, for each guard that no schedule is about. Where the engine or the worlds changed, others
/// are tried.
const NOTICED_BY: [(Guard, u64); 18] = [
    (Guard::LockOverWhatWasRead, 1),
    (Guard::LockAcknowledged, 1),
    (Guard::AbortBeforeTakeOver, 0),
    (Guard::AbortFlag, 1),
    (Guard::CommitSettled, 1),
    (Guard::ValidateReads, 12),
    (Guard::ValidateHolders, 196),
    (Guard::ReadOnlyWaits, 456),
    (Guard::LockAbsentReads, 2_550),
    (Guard::VerifyReadLocks, 1),
    (Guard::TouchAborted, 980),
    (Guard::TouchCommitted, 5_093),
    (Guard::PlaceholderVersion, 18),
    (Guard::ApplyAcknowledged, 588),
    (Guard::SettleSingle, 3),
    (Guard::SingleSeesLocks, 0),
    (Guard::MissingIsNotGone, 1),
    (Guard::WoundYounger, 333),
];

/// How many seeds are tried where the known one does not notice.
const TRIES: u64 = 6_000;

#[test]
fn every_guard_is_missed() {
    let mut not_missed = Vec::new();
    // The seeds of the table are those of worlds without what is switched.
    let troubles = Troubles::NONE;
    for guard in Guard::ALL {
        let known = NOTICED_BY.iter().find(|(known, _)| *known == guard).map(|(_, seed)| *seed);
        let noticed = known
            .and_then(|seed| catch(guard, seed..seed + 1, troubles))
            .or_else(|| catch(guard, 0..TRIES, troubles));
        match noticed {
            Some(noticed) => {
                println!("{guard:?}: {}: {}", noticed.by, noticed.violations[0]);
            }
            None => not_missed.push(guard),
        }
    }
    assert!(not_missed.is_empty(), "nobody noticed without {not_missed:?}");
}
