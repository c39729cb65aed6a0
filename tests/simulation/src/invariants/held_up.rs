//! A slow shard delays other shards only by shared requests.
//!
//! The delayed requests are reads.
//!
//! The invariant applies to runs without other faults.

use std::time::Duration;

use txn_core::store::Key;
use txn_sim::server::shard_of;

use crate::history::{Kind, Operation};
use crate::ledger::Ledger;
use crate::scenario::Slow;

/// The maximum duration of a read with all slots in use. Requests that hang use the slots.
const SOON: Duration = Duration::from_millis(300);

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let Slow::Shard(slow) = ledger.scenario.slow else { return Vec::new() };
    let mut violations = Vec::new();
    for look in ledger.operations.iter().filter(|look| look.kind == Kind::Look) {
        for doc in look.reads.keys() {
            let key = Key::new("world", doc.id());
            let took = look.ended.map_or(Duration::ZERO, |ended| ended - look.began);
            if shard_of(&key) != slow && took > SOON + excused(ledger, look, &key) {
                violations.push(format!("{} took {took:?} for {doc:?}", look.number));
            }
        }
    }
    violations
}

/// The time that the read spent in requests with slow documents.
fn excused(ledger: &Ledger, look: &Operation, key: &Key) -> Duration {
    let Some(ended) = look.ended else { return Duration::ZERO };
    let shared = ledger.held_up.iter().filter(|held_up| held_up.key == *key);
    shared.map(|h| h.until.min(ended).saturating_sub(h.from.max(look.began))).sum()
}
