//! A lock that is wanted, and what is known of its document meanwhile.

use crate::store::Version;
use txn_protocol::document::View;
use txn_protocol::rules::validate::Observed;

/// A lock that is wanted.
#[derive(Debug, Default)]
pub(super) struct Want {
    /// What the closure read, if it read the document.
    pub(super) read: Option<Observed>,
    /// What stands there, as far as it is known.
    pub(super) view: Option<View>,
    /// Where it stood when it was looked at before, if it was.
    pub(super) before: Option<Option<Version>>,
    /// It stands where it stood then.
    pub(super) again: bool,
    /// How many groups its document came through, at most, without being applied in between.
    pub(super) chain: u8,
    /// It was left to this attempt, to be locked over the commit before.
    pub(super) over: bool,
}

impl Want {
    pub(super) fn see(&mut self, view: View) {
        let version = Observed::of(&view).version;
        self.again = self.before.replace(version) == Some(version);
        self.view = Some(view);
    }

    /// It was looked at, and nobody has it.
    pub(super) fn is_free(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.holder().is_none())
    }

    /// Looks what stands there, if the lock was to be over a commit. Returns whether it was.
    pub(super) fn gives_up_over(&mut self) -> bool {
        let was_over = std::mem::take(&mut self.over);
        if was_over {
            cov_mark::hit!(lock_over_given_up);
            self.view = None;
        }
        was_over
    }
}
