//! `AttemptState`: the stage of an attempt, from its closure to its end.
//!
//! Caller, commit, time limit and dropped handle compete for each step, and the first of them wins.
//! The stage only advances, except that a late acknowledgement makes a released attempt committed.

use parking_lot::Mutex;

use super::receipt::Receipt;

/// The write that commits a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitKind {
    /// The write of the record.
    Record,
    /// The one write of a transaction without a record.
    Single,
}

/// The stages of an attempt, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The closure runs.
    #[default]
    Working,
    /// The end has begun, with or without a commit.
    ///
    /// A tracked task completes the end, even if the caller goes away.
    Concluding,
    /// No committing write was sent, and none will be.
    Closed,
    /// The committing write was sent, or is about to be sent.
    Sent(CommitKind),
    /// The committing write is acknowledged.
    Committed(Receipt),
    /// The attempt is over, and its locks are released or left.
    ///
    /// The field names the committing write, if one was sent.
    Released(Option<CommitKind>),
}

/// The current stage of an attempt.
#[derive(Debug, Default)]
pub(super) struct AttemptState(Mutex<Stage>);

impl AttemptState {
    pub(super) fn stage(&self) -> Stage {
        *self.0.lock()
    }

    pub(super) fn is_working(&self) -> bool {
        self.stage() == Stage::Working
    }

    /// Begins the end. Returns whether this call began the end.
    pub(super) fn conclude(&self) -> bool {
        self.go(|stage| (stage == Stage::Working).then_some(Stage::Concluding))
    }

    /// Prevents any further committing write. Returns whether none was sent.
    pub(super) fn close(&self) -> bool {
        self.go(|stage| match stage {
            Stage::Working | Stage::Concluding | Stage::Closed => Some(Stage::Closed),
            Stage::Released(None) => Some(stage),
            Stage::Sent(_) | Stage::Committed(_) | Stage::Released(Some(_)) => None,
        })
    }

    /// Announces the committing write. Returns whether the write may be sent.
    pub(super) fn send(&self, kind: CommitKind) -> bool {
        self.go(|stage| match stage {
            Stage::Working | Stage::Concluding => Some(Stage::Sent(kind)),
            Stage::Closed | Stage::Sent(_) | Stage::Committed(_) | Stage::Released(_) => None,
        })
    }

    /// Notes that the committing write is acknowledged.
    pub(super) fn committed(&self, receipt: Receipt) {
        self.go(|_| Some(Stage::Committed(receipt)));
    }

    /// Ends the attempt without an acknowledged commit.
    ///
    /// Returns whether the caller must release the locks.
    pub(super) fn release(&self) -> bool {
        self.go(|stage| match stage {
            Stage::Working | Stage::Concluding | Stage::Closed => Some(Stage::Released(None)),
            Stage::Sent(kind) => Some(Stage::Released(Some(kind))),
            Stage::Committed(_) | Stage::Released(_) => None,
        })
    }

    fn go(&self, next: impl FnOnce(Stage) -> Option<Stage>) -> bool {
        let mut stage = self.0.lock();
        let next = next(*stage);
        *stage = next.unwrap_or(*stage);
        next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_transition_wins() {
        let progress = AttemptState::default();
        assert!(progress.is_working() && progress.conclude() && !progress.conclude());
        assert!(progress.send(CommitKind::Record) && !progress.close());
        assert!(!progress.send(CommitKind::Single));
        let receipt = Receipt { tid: None, commit_version: None, attempts: 1, applied: false };
        progress.committed(receipt);
        assert!(!progress.release() && !progress.close());
        assert_eq!(progress.stage(), Stage::Committed(receipt));
    }

    #[test]
    fn closed_attempt_never_sends_its_commit() {
        let progress = AttemptState::default();
        assert!(progress.close() && progress.close() && !progress.send(CommitKind::Record));
        assert!(progress.release() && !progress.release());
        assert_eq!(progress.stage(), Stage::Released(None));
        assert!(progress.close() && !progress.send(CommitKind::Record));
    }

    #[test]
    fn release_remembers_a_sent_commit() {
        let progress = AttemptState::default();
        assert!(progress.send(CommitKind::Single) && progress.release() && !progress.close());
        assert_eq!(progress.stage(), Stage::Released(Some(CommitKind::Single)));
    }
}
