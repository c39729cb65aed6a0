//! Each guard of the protocol is switched off in turn, and something must notice.

use txn_core::guard::Guard;
use txn_simulation::catch;

/// Seeds that notice, for each guard that no schedule is about. Where the engine or the worlds changed, others
/// are tried.
const NOTICED_BY: [(Guard, u64); 23] = [
    (Guard::LockOverWhatWasRead, 1),
    (Guard::LockAcknowledged, 0),
    (Guard::AbortBeforeTakeOver, 0),
    (Guard::AbortFlag, 1),
    (Guard::CommitSettled, 1),
    (Guard::ValidateReads, 10),
    (Guard::ValidateHolders, 53),
    (Guard::ReadOnlyWaits, 120),
    (Guard::LockAbsentReads, 2168),
    (Guard::VerifyReadLocks, 39),
    (Guard::TouchAborted, 562),
    (Guard::TouchCommitted, 590),
    (Guard::PlaceholderVersion, 18),
    (Guard::ApplyAcknowledged, 1107),
    (Guard::TouchApplied, 29),
    (Guard::ReadTheRecord, 12),
    (Guard::SettleSingle, 0),
    (Guard::SingleSeesLocks, 0),
    (Guard::DroppedThrough, 123),
    (Guard::MissingIsNotGone, 1),
    (Guard::DropOnlyResolved, 1838),
    (Guard::BlockBeforeDrop, 1838),
    (Guard::WoundYounger, 115),
];

/// How many seeds are tried where the known one does not notice.
const TRIES: u64 = 6_000;

#[test]
fn every_guard_is_missed() {
    let mut not_missed = Vec::new();
    for guard in Guard::ALL {
        let known = NOTICED_BY.iter().find(|(known, _)| *known == guard).map(|(_, seed)| *seed);
        let noticed =
            known.and_then(|seed| catch(guard, seed..seed + 1)).or_else(|| catch(guard, 0..TRIES));
        match noticed {
            Some(noticed) => {
                println!("{guard:?}: {}: {}", noticed.by, noticed.violations[0]);
            }
            None => not_missed.push(guard),
        }
    }
    assert!(not_missed.is_empty(), "nobody noticed without {not_missed:?}");
}
