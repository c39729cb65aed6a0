//! Parts of the scripts of stores, in terms of the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use txn_core::store::fields::TRANSACTION_TID;
use txn_core::store::{Outcome, Write, WriteOp};
use txn_sim::{Call, Closed, Fate, Scripted, Step};

/// The moment from which the writes of a process no longer arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dies {
    Never,
    BeforeCommit,
    AfterCommit,
    /// The owner applies every participant, and does not finish the record.
    BeforeFinish,
    /// The store refuses writes of documents after the commit.
    ///
    /// The process lives on, and its writes arrive again once `held_back` is cleared.
    HeldBackAfterCommit,
}

/// Plays the death of a process. Returns the switch for held-back writes.
pub(crate) fn die(store: &Scripted, dies: Dies) -> Arc<AtomicBool> {
    let (dead, held_back) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let held = held_back.clone();
    store.play(move |write| {
        let commits = is_commit(write);
        let is_last = match dies {
            Dies::BeforeCommit => commits,
            Dies::BeforeFinish => is_record(write, "finished"),
            _ => false,
        };
        dead.fetch_or(is_last, Ordering::SeqCst);
        if dead.load(Ordering::SeqCst) && write.op.changes() {
            return Fate::RefuseWith(Outcome::Rejected("the process is dead".to_owned()));
        }
        if held.load(Ordering::SeqCst) && !write.require_alias {
            let closed = "index_closed_exception".to_owned();
            return Fate::RefuseWith(Outcome::RejectedInDoubt(closed));
        }
        match dies {
            Dies::AfterCommit if commits => dead.store(true, Ordering::SeqCst),
            Dies::HeldBackAfterCommit if commits => held.store(true, Ordering::SeqCst),
            _ => {}
        }
        Fate::Pass
    });
    held_back
}

/// Carries out but refuses the first matching write, and goes down.
pub(crate) fn refuse_and_go_down(
    store: &Arc<Scripted>,
    refusal: Outcome,
    which: impl Fn(&Write) -> bool + Send + Sync + 'static,
) {
    let (weak, met) = (Arc::downgrade(store), AtomicUsize::new(0));
    store.play(move |write| {
        if !which(write) || met.fetch_add(1, Ordering::SeqCst) > 0 {
            return Fate::Pass;
        }
        if let Some(store) = weak.upgrade() {
            store.set_down(true);
        }
        Fate::AnswerWith(refusal.clone())
    });
}

/// Answers the next write whose id has this prefix with a conflict.
///
/// The write is applied. A request that races with its own retry receives the same answer.
pub(crate) fn race(store: &Scripted, prefix: &'static str) {
    let is_next = AtomicBool::new(true);
    store.play(move |write| {
        match write.key.id.starts_with(prefix) && is_next.swap(false, Ordering::SeqCst) {
            true => Fate::AnswerWith(Outcome::Conflict),
            false => Fate::Pass,
        }
    });
}

/// Closes a collection at the next commit.
pub(crate) fn close_at_commit(store: &Arc<Scripted>, collection: &'static str) {
    let (weak, is_next) = (Arc::downgrade(store), AtomicBool::new(true));
    store.before(move |call| {
        if call.writes(is_commit)
            && is_next.swap(false, Ordering::SeqCst)
            && let Some(store) = weak.upgrade()
        {
            store.close(collection, Closed::Entirely);
        }
        Step::pass()
    });
}

/// The names of collections that were refreshed and scanned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(Arc<Mutex<(Vec<String>, Vec<String>)>>);

impl Looks {
    /// Notes the refreshes and scans from now on.
    pub(crate) fn at(store: &Scripted) -> Self {
        let looks = Self::default();
        let noted = looks.clone();
        store.before(move |call| {
            match call {
                Call::Refresh(name) => noted.0.lock().0.push(name.to_owned()),
                Call::Scan(name, _) => noted.0.lock().1.push(name.to_owned()),
                _ => {}
            }
            Step::pass()
        });
        looks
    }

    /// Returns the collections that were refreshed and scanned since the last call.
    pub(crate) fn take(&self) -> (Vec<String>, Vec<String>) {
        std::mem::take(&mut self.0.lock())
    }
}

/// Whether a write commits a record.
pub(crate) fn is_commit(write: &Write) -> bool {
    is_record(write, "committed")
}

/// Whether a write gives a record this state.
pub(crate) fn is_record(write: &Write, state: &str) -> bool {
    write.require_alias && writes(write, &format!("\"state\":\"{state}\""))
}

/// Whether a write takes a lock.
pub(crate) fn is_lock(write: &Write) -> bool {
    !write.require_alias && writes(write, &format!("\"{TRANSACTION_TID}\""))
}

/// Whether a write applies a document: the write removes the lock.
pub(crate) fn is_apply(write: &Write) -> bool {
    !write.key.collection.starts_with("txn-") && write.op.changes() && !is_lock(write)
}

/// Whether a write contains this text.
pub(crate) fn writes(write: &Write, text: &str) -> bool {
    matches!(&write.op, WriteOp::Create(source) | WriteOp::Replace(source, _) if source.contains(text))
}
