//! Groups: transactions of this process that are merged into one commit.
//!
//! To every other process a group is one larger transaction.
//!
//! An attempt enters the queue after its closure, with the documents that the closure used. A group
//! takes waiting transactions, oldest first, whose documents no running group uses. A transaction
//! that has to wait blocks its documents for younger transactions. Few groups run at a time, and no
//! timer delays a group: on an idle system each transaction commits at once and alone.

mod caller;
mod form;
mod membership;
mod queue;
mod uses;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::attempt::Attempt;
use crate::attempt::merging::reservation::{DocumentReservation, Reservation};
use crate::engine::SharedEngine;
use crate::engine::hot::GroupQueue;
use crate::sync::Mutex;
use txn_protocol::ids::{Age, MAX_ATTEMPT};
use txn_store::Key;

use caller::LONGEST_WAIT_OF_READERS;
use membership::SharedMembership;
use queue::{Queue, Waiter};
use uses::Uses;

pub(crate) use caller::{CallerMessage, Rerun, WaitingCaller};

/// How long a group counts against the bound on groups.
///
/// A slower group, for example on a slow collection, delays no further group.
const SLOW: Duration = Duration::from_millis(100);

/// A position in the queue: by age, then by arrival.
type QueuePosition = (Age, u64);

/// The groups of a domain in this process.
#[derive(Debug)]
pub(crate) struct Groups {
    engine: SharedEngine,
    queue: Mutex<Queue>,
}

/// The numbers of the attempts of one transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptNumbers(Arc<AtomicU16>);

impl AttemptNumbers {
    /// The number of the next attempt.
    pub(crate) fn next(&self) -> u16 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of attempts so far.
    pub(crate) fn count(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Groups {
    /// The groups of a domain, if group commit is enabled.
    pub(crate) fn of(engine: &SharedEngine) -> Option<Arc<Self>> {
        let queue = Mutex::default();
        let groups =
            engine.hot.has_groups.then(|| Arc::new(Self { engine: engine.clone(), queue }));
        if let Some(groups) = &groups {
            let _ = engine.hot.group_queue.set(Box::new(Arc::downgrade(groups)));
        }
        groups
    }

    /// The number of transactions that wait for a group.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().len()
    }

    /// Queues an attempt that may join a group, after its closure.
    ///
    /// `is_retry`: an earlier attempt of the transaction failed. A read-only transaction queues
    /// only if this process writes one of its documents, or if the transaction is a retry.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        attempts: &AttemptNumbers,
        is_retry: bool,
    ) -> Option<WaitingCaller> {
        // The attempts of groups take numbers of this transaction, too.
        if attempts.count() > MAX_ATTEMPT / 2 {
            return None;
        }
        let uses = Self::uses_of(attempt)?;
        let now = self.engine.context.now();
        let only_reads = uses.only_reads();
        let is_unapplied = |key| self.engine.hot.handoffs.contains(key);
        let is_written =
            || self.queue.lock().is_any_written(&uses.read) || uses.read.iter().any(is_unapplied);
        // While another process has the turn at its documents, a read-only transaction waits alone.
        let is_turn = || self.engine.hot.board.may_lock(&uses.read, now);
        if only_reads && (!is_retry && !is_written() || !is_turn()) {
            return None;
        }
        let wanted = (!only_reads).then(|| self.engine.hot.board.want(uses.keys()));
        let runtime = Handle::try_current().ok()?;
        let (reply_to, replies) = mpsc::unbounded_channel();
        let membership = SharedMembership::default();
        let waiter = Waiter {
            attempt: attempt.clone(),
            attempts: attempts.clone(),
            collections: uses.collections(),
            uses,
            max_members: usize::MAX,
            returns: 0,
            waits_since: now,
            passed_over: false,
            _wanted: wanted,
            membership: membership.clone(),
            reply_to,
            served_in: self.engine.context.lifecycle.served_in(&runtime),
            runtime,
        };
        let ends_at = attempt.ends_at();
        let leaves_at = only_reads.then(|| now + LONGEST_WAIT_OF_READERS);
        let position = self.queue.lock().enter(waiter);
        self.start_groups_for(Some(position));
        Some(WaitingCaller {
            groups: self.clone(),
            position,
            membership,
            replies,
            ends_at,
            leaves_at,
        })
    }

    /// Starts each group that can start now.
    pub(crate) fn start_groups(self: &Arc<Self>) {
        self.start_groups_for(None);
    }

    fn start_groups_for(self: &Arc<Self>, only: Option<QueuePosition>) {
        let now = self.engine.context.now();
        loop {
            let granted = self.queue.lock().grant_permit(now, only, &self.engine);
            let Some((number, runtime)) = granted else { return };
            let permit = GroupPermit(Arc::new(PermitGuard { groups: self.clone(), number }));
            let forming = self.clone().form_group(permit, runtime.id());
            self.engine.context.lifecycle.spawn_for(&runtime, forming);
            // Each set of collections has permits of its own. A permit that is back at once
            // belonged to a runtime that has ended.
            if only.is_some() || !self.queue.lock().is_granted(number) {
                return;
            }
        }
    }

    /// Removes a waiter from the queue, and starts unblocked groups.
    ///
    /// Returns the document that the waiter waits for, if the waiter was still in the queue.
    fn leave(self: &Arc<Self>, position: QueuePosition) -> Option<Key> {
        let document = {
            let mut queue = self.queue.lock();
            let uses = queue.leave(position)?.uses;
            queue.one_in_use(&uses).cloned()
        };
        self.start_groups();
        document
    }

    /// The documents of an attempt, if the attempt may join a group.
    fn uses_of(attempt: &Attempt) -> Option<Uses> {
        let (read, written) = attempt.documents_to_merge()?;
        Some(Uses { read, written })
    }
}

impl GroupQueue for Weak<Groups> {
    fn start_groups(&self) {
        if let Some(groups) = self.upgrade() {
            groups.start_groups();
        }
    }

    fn documents(&self, enough: usize, selects: &dyn Fn(&Key) -> bool) -> BTreeSet<Key> {
        self.upgrade()
            .map(|groups| groups.queue.lock().documents(enough, selects))
            .unwrap_or_default()
    }
}

/// The permit of a group to run. Dropping the last clone returns the permit.
#[derive(Clone, Debug)]
struct GroupPermit(Arc<PermitGuard>);

impl GroupPermit {
    fn number(&self) -> u64 {
        self.0.number
    }
}

#[derive(Debug)]
struct PermitGuard {
    groups: Arc<Groups>,
    number: u64,
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        if self.groups.queue.lock().return_permit(self.number) {
            self.groups.start_groups();
        }
    }
}

/// The documents that a group uses.
#[derive(Debug)]
struct ReservedDocuments {
    groups: Arc<Groups>,
    /// The documents of each member.
    uses: Vec<Uses>,
}

impl ReservedDocuments {
    fn new(groups: &Arc<Groups>, uses: Vec<Uses>) -> Self {
        Self { groups: groups.clone(), uses }
    }

    /// Frees documents for other transactions.
    ///
    /// The commit applies the documents that no later transaction locked over the commit.
    fn free(&self, uses: &[Uses]) {
        {
            let mut queue = self.groups.queue.lock();
            uses.iter().for_each(|uses| queue.free(uses));
        }
        self.groups.engine.hot.handoffs.nudge(uses.iter().flat_map(|uses| &uses.written));
        self.groups.start_groups();
    }
}

impl Reservation for ReservedDocuments {}

impl DocumentReservation for ReservedDocuments {
    fn give_back(&mut self, given: &dyn Fn(&Key) -> bool) {
        let given = |uses: &mut Uses| Uses {
            written: uses.written.extract_if(.., |key| given(key)).collect(),
            ..Uses::default()
        };
        let given: Vec<Uses> =
            self.uses.iter_mut().map(given).filter(|given| !given.written.is_empty()).collect();
        if !given.is_empty() {
            self.free(&given);
        }
    }

    fn reclaim(&mut self, keys: BTreeSet<Key>) -> BTreeSet<Key> {
        let uses = self.groups.queue.lock().reclaim(keys);
        if !uses.written.is_empty() {
            self.uses.push(uses.clone());
        }
        uses.written
    }
}

impl Drop for ReservedDocuments {
    fn drop(&mut self) {
        self.free(&self.uses);
    }
}

/// The permit of a group, with its documents that are only read.
#[derive(Debug)]
struct PermitWithReads {
    _reads: ReservedDocuments,
    _permit: GroupPermit,
}

impl Reservation for PermitWithReads {}
