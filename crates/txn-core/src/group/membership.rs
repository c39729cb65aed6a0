//! The membership of a transaction, shared by its caller and its group.
//!
//! A caller whose deadline passes gets an answer that stays true: out of the group, or in doubt.

use std::sync::Arc;

use crate::attempt::Attempt;
use crate::sync::Mutex;
use txn_protocol::ids::AttemptId;

/// The membership, as the caller and the group share it.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedMembership(Arc<Mutex<Membership>>);

/// The state of a transaction in the queue.
#[derive(Debug, Default)]
enum Membership {
    /// The transaction waits.
    #[default]
    Waiting,
    /// A group merges the transaction, which takes a moment. Nothing was sent.
    Merging,
    /// An attempt commits the transaction.
    Joined(Joined),
    /// The caller has its answer: no group merges the transaction again.
    Left,
}

/// The attempt that commits a transaction.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) attempt: Arc<Attempt>,
    /// The number of the transaction's component in the attempt.
    pub(super) component: usize,
    /// Whether a record will hold the outcome.
    pub(super) recorded: bool,
    /// Whether the transaction only reads, so that it is never in doubt.
    pub(super) only_reads: bool,
}

/// The answer to a caller that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// The transaction is not committed, and never will be.
    Out,
    /// The answer is not known yet, for a moment.
    Soon,
    /// The transaction may be committed.
    ///
    /// The field names the attempt, if its record will tell the outcome.
    InDoubt(Option<AttemptId>),
}

impl SharedMembership {
    /// Begins the merge. Returns whether the transaction still waits.
    pub(super) fn begin_merge(&self) -> bool {
        let membership = &mut *self.0.lock();
        let waits = matches!(membership, Membership::Waiting);
        if waits {
            *membership = Membership::Merging;
        }
        waits
    }

    /// Notes the attempt that commits the transaction.
    pub(super) fn join(&self, joined: Joined) {
        let membership = &mut *self.0.lock();
        if !matches!(membership, Membership::Left) {
            *membership = Membership::Joined(joined);
        }
    }

    /// Lets the transaction wait again. Returns whether its caller still waits.
    pub(super) fn wait(&self) -> bool {
        let membership = &mut *self.0.lock();
        let waits = !matches!(membership, Membership::Left);
        if waits {
            *membership = Membership::Waiting;
        }
        waits
    }

    /// Takes the transaction out if no group has begun to merge it. Returns whether it is out.
    pub(super) fn leave_the_queue(&self) -> bool {
        let membership = &mut *self.0.lock();
        let waits = matches!(membership, Membership::Waiting);
        if waits {
            *membership = Membership::Left;
        }
        waits
    }

    /// Takes the transaction out, because its caller waits no longer.
    ///
    /// During a merge the answer is [`Certainty::Soon`], and for a joined transaction until
    /// `overdue`. Any other answer stays true: an attempt of several components that has not sent
    /// its commit evicts the component.
    pub(super) fn leave(&self, overdue: bool) -> Certainty {
        let membership = &mut *self.0.lock();
        let certainty = match membership {
            Membership::Merging => return Certainty::Soon,
            Membership::Joined(_) if !overdue => return Certainty::Soon,
            Membership::Waiting | Membership::Left => Certainty::Out,
            Membership::Joined(joined) if joined.only_reads => Certainty::Out,
            Membership::Joined(joined) if joined.attempt.leave(joined.component) => Certainty::Out,
            Membership::Joined(joined) => {
                Certainty::InDoubt(joined.recorded.then_some(joined.attempt.tid))
            }
        };
        *membership = Membership::Left;
        certainty
    }
}
