//! The guards of the protocol, each of which a test can switch off to see that something notices.
//!
//! Without the feature `testing` every guard stands, and asking costs nothing.

/// A rule without which the protocol is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// A lock is taken only over the content that the closure read.
    LockOverWhatWasRead,
    /// A lock whose write was not acknowledged counts only once an acknowledged touch says so.
    LockAcknowledged,
    /// The lock of somebody else is replaced only once its holder's abort is acknowledged.
    AbortBeforeTakeOver,
    /// A commit that finds its record aborted is no commit.
    AbortFlag,
    /// A commit that was not acknowledged is settled before anything else is done.
    CommitSettled,
    /// What was only read is validated after every lock is acknowledged.
    ValidateReads,
    /// A read that somebody else holds is not valid, though its version is the same.
    ValidateHolders,
    /// A read-only transaction waits for the undecided holders it meets.
    ReadOnlyWaits,
    /// Documents that were absent when they were read are locked by placeholders.
    LockAbsentReads,
    /// A transaction that only locked reads looks in the end whether all locks still stand.
    VerifyReadLocks,
    /// An `aborted` record of somebody else is touched before its locks are voided.
    TouchAborted,
    /// A `committed` record of somebody else is touched before it is applied.
    TouchCommitted,
    /// A placeholder is a lock only at the version that the record names.
    PlaceholderVersion,
    /// An apply that was not acknowledged is settled before the record is finished.
    ApplyAcknowledged,
    /// A participant that is gone counts as deleted only once an acknowledged write proves it.
    ProveAbsence,
    /// What seems applied counts only once it is touched.
    TouchApplied,
    /// Readers answer for a locked document by the record of its holder.
    ReadTheRecord,
    /// A one-document write that was not acknowledged is settled by the document's list of commits.
    SettleSingle,
    /// A one-document write is sent only where no lock stood.
    SingleSeesLocks,
    /// The partition of a day that is gone is not made again.
    DroppedThrough,
    /// A missing partition says nothing of a transaction as long as its day is not gone.
    MissingIsNotGone,
    /// A partition is dropped only when nothing in it is open.
    DropOnlyResolved,
    /// Nobody writes to a partition any more while it is searched for the last time.
    BlockBeforeDrop,
    /// An older transaction does not wait for a younger one.
    WoundYounger,
}

impl Guard {
    /// All of them.
    #[cfg(feature = "testing")]
    pub const ALL: [Self; 24] = [
        Self::LockOverWhatWasRead,
        Self::LockAcknowledged,
        Self::AbortBeforeTakeOver,
        Self::AbortFlag,
        Self::CommitSettled,
        Self::ValidateReads,
        Self::ValidateHolders,
        Self::ReadOnlyWaits,
        Self::LockAbsentReads,
        Self::VerifyReadLocks,
        Self::TouchAborted,
        Self::TouchCommitted,
        Self::PlaceholderVersion,
        Self::ApplyAcknowledged,
        Self::ProveAbsence,
        Self::TouchApplied,
        Self::ReadTheRecord,
        Self::SettleSingle,
        Self::SingleSeesLocks,
        Self::DroppedThrough,
        Self::MissingIsNotGone,
        Self::DropOnlyResolved,
        Self::BlockBeforeDrop,
        Self::WoundYounger,
    ];

    /// Whether the guard stands.
    #[cfg(feature = "testing")]
    pub fn stands(self) -> bool {
        OFF.get() != Some(self)
    }

    /// Whether the guard stands.
    #[cfg(not(feature = "testing"))]
    #[inline]
    pub const fn stands(self) -> bool {
        true
    }
}

#[cfg(feature = "testing")]
thread_local! {
    static OFF: std::cell::Cell<Option<Guard>> = const { std::cell::Cell::new(None) };
}

/// Runs `work` on this thread with one guard switched off. For tests that look whether they notice; an
/// engine whose tasks run on other threads is not affected.
#[cfg(feature = "testing")]
pub fn without<T>(guard: Guard, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Guard>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OFF.set(self.0);
        }
    }
    let _restore = Restore(OFF.replace(Some(guard)));
    work()
}
