//! Whether a transaction that waits to be composed is in or out: what its caller is told at its deadline has to be so.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::attempt::Attempt;
use txn_protocol::ids::AttemptId;

/// Shared by who waits and who composes.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedStanding(Arc<Mutex<Standing>>);

/// How it stands.
#[derive(Debug, Default)]
enum Standing {
    /// It waits.
    #[default]
    Waits,
    /// It is being composed, which takes a moment. Nothing was sent.
    Composed,
    /// An attempt stands for it.
    Joined(Joined),
    /// Its caller knows what becomes of it. It is never composed again.
    Out,
}

/// How an attempt stands for a transaction.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) attempt: Arc<Attempt>,
    /// Its number among those that the attempt stands for.
    pub(super) component: usize,
    /// Whether a record will tell the outcome.
    pub(super) recorded: bool,
    /// Whether it only reads, so that nothing of it can be in doubt.
    pub(super) only_reads: bool,
}

/// What a caller can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It is not committed, and never will be.
    Out,
    /// Nobody can tell yet, for a moment.
    Soon,
    /// It may be committed, and by whom, if a record tells.
    InDoubt(Option<AttemptId>),
}

impl SharedStanding {
    /// It is about to be composed. Returns whether it may be.
    pub(super) fn compose(&self) -> bool {
        let standing = &mut *self.0.lock();
        let waits = matches!(standing, Standing::Waits);
        if waits {
            *standing = Standing::Composed;
        }
        waits
    }

    /// An attempt stands for it.
    pub(super) fn join(&self, joined: Joined) {
        let standing = &mut *self.0.lock();
        if !matches!(standing, Standing::Out) {
            *standing = Standing::Joined(joined);
        }
    }

    /// No attempt stands for it any more. Returns whether it may wait again.
    pub(super) fn wait(&self) -> bool {
        let standing = &mut *self.0.lock();
        let waits = !matches!(standing, Standing::Out);
        if waits {
            *standing = Standing::Waits;
        }
        waits
    }

    /// Its caller waits no longer than for those who compose, or for the attempt that stands for it while it is not `overdue`. What
    /// it is told then holds: an attempt that has not sent its commit goes on without it, if it stands for others.
    pub(super) fn leave(&self, overdue: bool) -> Certainty {
        let standing = &mut *self.0.lock();
        let certainty = match standing {
            Standing::Composed => return Certainty::Soon,
            Standing::Joined(_) if !overdue => return Certainty::Soon,
            Standing::Waits | Standing::Out => Certainty::Out,
            Standing::Joined(joined) if joined.only_reads => Certainty::Out,
            Standing::Joined(joined) if joined.attempt.leave(joined.component) => Certainty::Out,
            Standing::Joined(joined) => {
                Certainty::InDoubt(joined.recorded.then_some(joined.attempt.tid))
            }
        };
        *standing = Standing::Out;
        certainty
    }
}
