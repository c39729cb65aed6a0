//! The state of one acquisition of locks.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::attempt::locking::lock_request::LockRequest;
use crate::attempt::locking::waiting::LockWaits;
use crate::attempt::{Attempt, Mutation, ReadEntry};
use crate::clock::Backoff;
use crate::engine::hot::handoff::Handoff;
use txn_protocol::document::View;
use txn_store::{Key, Write};

/// One acquisition of locks, round by round.
pub(super) struct LockPhase<'a> {
    pub(super) attempt: &'a Arc<Attempt>,
    /// Ends the lock phase when cancelled. The attempt then sends no further lock, and waits for no
    /// holder.
    pub(super) given_up: &'a CancellationToken,
    pub(super) waits: LockWaits<'a>,
    pub(super) backoff: Backoff,
    /// The hand-offs that the next bulk locks.
    pub(super) handoffs: BTreeMap<Key, Handoff>,
    /// The locks that are not acknowledged.
    pub(super) requests: BTreeMap<Key, LockRequest>,
    /// Dry runs for the next bulk.
    pub(super) checks: Vec<Write>,
    pub(super) rounds: u32,
}

impl<'a> LockPhase<'a> {
    pub(super) fn new(
        attempt: &'a Arc<Attempt>,
        wanted: BTreeMap<Key, Option<ReadEntry>>,
        checks: Vec<Write>,
        given_up: &'a CancellationToken,
    ) -> Self {
        let mut requests: BTreeMap<Key, LockRequest> = BTreeMap::new();
        for (key, entry) in wanted {
            if attempt.locks.lock().held.contains_key(&key) {
                continue;
            }
            let request = request(attempt, &key, entry);
            requests.insert(key, request);
        }
        let (waits, backoff) = (LockWaits::new(attempt), attempt.engine.context.backoff());
        let (handoffs, rounds) = (BTreeMap::new(), 0);
        Self { attempt, given_up, waits, backoff, handoffs, requests, checks, rounds }
    }
}

/// The request for a document, as the closure read the document.
fn request(attempt: &Attempt, key: &Key, entry: Option<ReadEntry>) -> LockRequest {
    let Some(entry) = entry else {
        // An insert takes the document for absent: its lock is a create, which fails otherwise.
        let inserts = matches!(attempt.working.lock().writes.get(key), Some(Mutation::Insert(_)));
        return LockRequest { view: inserts.then_some(View::Absent), ..LockRequest::default() };
    };
    LockRequest {
        // Content from a record is no view to lock on, so the document is read again.
        view: entry.observed.version.map_or_else(
            || entry.observed.holder.is_none().then_some(View::Absent),
            |_| Some(entry.view),
        ),
        read: Some(entry.observed),
        ..LockRequest::default()
    }
}
