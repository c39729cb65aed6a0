//! How far an attempt is, for everybody who may end it: its caller, its commit, its limit, a handle that is dropped. It only
//! goes forward, and whoever comes first settles each step.

use parking_lot::Mutex;

use super::receipt::Receipt;

/// What commits a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decisive {
    /// Its record.
    Record,
    /// The one write of a transaction without a record.
    Single,
}

/// How far an attempt is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its closure runs.
    #[default]
    Working,
    /// Its end has begun, by a commit or without one: a tracked task sees it through, whoever goes away.
    Concluding,
    /// Nothing that commits was sent, and nothing will be.
    Closed,
    /// What commits was sent, or is about to be.
    Sent(Decisive),
    /// That is acknowledged.
    Committed(Receipt),
    /// It is over: its locks are taken off, or left to whoever meets them. What had been sent that commits.
    Released(Option<Decisive>),
}

/// The stage of an attempt.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<Stage>);

impl Progress {
    pub(super) fn stage(&self) -> Stage {
        *self.0.lock()
    }

    pub(super) fn is_working(&self) -> bool {
        self.stage() == Stage::Working
    }

    /// Begins the end. Returns whether nobody else has.
    pub(super) fn conclude(&self) -> bool {
        self.go(|stage| (stage == Stage::Working).then_some(Stage::Concluding))
    }

    /// Makes sure that nothing that commits is sent any more. Returns whether nothing was.
    pub(super) fn close(&self) -> bool {
        self.go(|stage| match stage {
            Stage::Working | Stage::Concluding | Stage::Closed => Some(Stage::Closed),
            Stage::Released(None) => Some(stage),
            Stage::Sent(_) | Stage::Committed(_) | Stage::Released(Some(_)) => None,
        })
    }

    /// What commits is about to be sent. Returns whether it may be.
    pub(super) fn send(&self, decisive: Decisive) -> bool {
        self.go(|stage| match stage {
            Stage::Working | Stage::Concluding => Some(Stage::Sent(decisive)),
            Stage::Closed | Stage::Sent(_) | Stage::Committed(_) | Stage::Released(_) => None,
        })
    }

    /// It is acknowledged.
    pub(super) fn committed(&self, receipt: Receipt) {
        self.go(|_| Some(Stage::Committed(receipt)));
    }

    /// The attempt is over without a commit that anybody here knows of. Returns whether it is for the caller to take the
    /// locks off.
    pub(super) fn release(&self) -> bool {
        self.go(|stage| match stage {
            Stage::Working | Stage::Concluding | Stage::Closed => Some(Stage::Released(None)),
            Stage::Sent(decisive) => Some(Stage::Released(Some(decisive))),
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
    fn whoever_comes_first_settles_it() {
        let progress = Progress::default();
        assert!(progress.is_working() && progress.conclude() && !progress.conclude());
        assert!(progress.send(Decisive::Record) && !progress.close());
        assert!(!progress.send(Decisive::Single));
        let receipt = Receipt { tid: None, commit_version: None, attempts: 1, applied: false };
        progress.committed(receipt);
        assert!(!progress.release() && !progress.close());
        assert_eq!(progress.stage(), Stage::Committed(receipt));
    }

    #[test]
    fn what_was_closed_is_never_sent() {
        let progress = Progress::default();
        assert!(progress.close() && progress.close() && !progress.send(Decisive::Record));
        assert!(progress.release() && !progress.release());
        assert_eq!(progress.stage(), Stage::Released(None));
        assert!(progress.close() && !progress.send(Decisive::Record));
    }

    #[test]
    fn what_was_sent_is_not_forgotten() {
        let progress = Progress::default();
        assert!(progress.send(Decisive::Single) && progress.release() && !progress.close());
        assert_eq!(progress.stage(), Stage::Released(Some(Decisive::Single)));
    }
}
