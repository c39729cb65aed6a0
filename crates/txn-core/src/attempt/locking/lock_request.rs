//! A pending lock request, and the known state of its document.

use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::validate::Observed;
use txn_store::{Version, WriteOp};

/// A lock that the attempt still has to acquire.
#[derive(Debug, Default)]
pub(in crate::attempt) struct LockRequest {
    /// The document as the closure read it, if the closure did.
    pub(in crate::attempt) read: Option<Observed>,
    /// The current document, as far as it is known.
    pub(in crate::attempt) view: Option<View>,
    /// The version at the previous read, if there was one.
    pub(in crate::attempt) before: Option<Option<Version>>,
    /// Whether the version is unchanged since the previous read.
    pub(in crate::attempt) again: bool,
    /// How many commits have handed the document on since its last apply.
    pub(in crate::attempt) depth: u8,
    /// Whether the lock overwrites an unapplied commit of this process.
    pub(in crate::attempt) handed_off: bool,
}

impl LockRequest {
    pub(in crate::attempt) fn see(&mut self, view: View) {
        let version = Observed::of(&view).version;
        self.again = self.before.replace(version) == Some(version);
        self.view = Some(view);
    }

    /// Gives up a hand-off, so that the document is read again.
    ///
    /// Returns whether there was a hand-off.
    pub(in crate::attempt) fn drop_handoff(&mut self) -> bool {
        let was_handed_off = std::mem::take(&mut self.handed_off);
        if was_handed_off {
            cov_mark::hit!(handoff_given_up);
            self.view = None;
        }
        was_handed_off
    }
}

/// The next step towards one lock.
pub(in crate::attempt) enum LockStep {
    Write(WriteOp),
    LookAgain,
    Blocked(AttemptId),
}
