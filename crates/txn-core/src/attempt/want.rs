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
    /// How many commits have handed the document on since it was applied.
    pub(super) depth: u8,
    /// The lock overwrites a commit of this process, which is not applied.
    pub(super) handed_off: bool,
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

    /// Looks at the document, if the lock was to overwrite a commit. Returns whether it was.
    pub(super) fn gives_up_handoff(&mut self) -> bool {
        let was_handed_off = std::mem::take(&mut self.handed_off);
        if was_handed_off {
            cov_mark::hit!(handoff_given_up);
            self.view = None;
        }
        was_handed_off
    }
}
