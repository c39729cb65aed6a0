//! The outcome of a write without a record, from its document.

use super::validate::Observed;
use crate::document::View;
use crate::ids::CommitVersion;
use txn_store::Version;

/// The next step for a write of one document without an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// Send the same write again. The document is still as it was read.
    Resend,
    /// The write is in the list. An acknowledged touch on this version proves the commit.
    CommittedOnceTouched(Version),
    /// The list goes back to the read, without the write.
    ///
    /// The list has the commit that was read, or an entry of the list that was read. An
    /// acknowledged touch on this version prevents the write for good.
    NotAppliedOnceTouched(Version),
    /// The list does not go back far enough.
    Unknown,
}

/// The next step, by the document as it is now.
///
/// `read`: the read that the write is conditioned on. `recent`: the list of commits in that read.
/// `commit`: the commit version of the write.
///
/// A process that shortens a list removes the oldest entries first, or its own settled entries
/// ([`super::recent`]). So if an entry from before this write is present, this write was not
/// removed from the list.
pub fn settling(
    read: &Observed,
    recent: &[CommitVersion],
    commit: CommitVersion,
    now: &View,
) -> Settling {
    let View::Present { version, stored, .. } = now else { return Settling::Unknown };
    let stands =
        |tid: &CommitVersion| stored.recent.contains(tid) || stored.commit_version == Some(*tid);
    if stands(&commit) {
        return Settling::CommittedOnceTouched(*version);
    }
    if read.version == Some(*version) {
        return Settling::Resend;
    }
    match !stored.absent && recent.iter().chain(&read.commit_version).any(stands) {
        true => Settling::NotAppliedOnceTouched(*version),
        false => Settling::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{commit, image, tid, version, view};
    use super::*;
    use crate::document::Stored;

    #[test]
    fn every_row() {
        let [old, base, commit, later] = [1, 2, 5, 6].map(commit);
        let stored = |t: CommitVersion, recent: &[CommitVersion]| Stored {
            commit_version: Some(t),
            recent: recent.into(),
            image: image(1),
            ..Stored::default()
        };
        let listed = [old, base];
        let read = Observed::of(&view(3, stored(base, &listed)));
        let v = version(4);
        for (now, expect) in [
            (view(3, stored(base, &[old, base])), Settling::Resend),
            (view(4, stored(commit, &[base, commit])), Settling::CommittedOnceTouched(v)),
            (view(4, stored(later, &[commit, later])), Settling::CommittedOnceTouched(v)),
            (view(4, stored(later, &[base, later])), Settling::NotAppliedOnceTouched(v)),
            (view(4, stored(base, &[])), Settling::NotAppliedOnceTouched(v)),
            // The process that wrote the content that was read removed that entry with its next
            // commit.
            (view(4, stored(later, &[old, later])), Settling::NotAppliedOnceTouched(v)),
            (view(4, stored(later, &[later])), Settling::Unknown),
            (view(4, Stored::placeholder(tid(6, 0))), Settling::Unknown),
            (View::Absent, Settling::Unknown),
        ] {
            assert_eq!(settling(&read, &listed, commit, &now), expect, "{now:?}");
        }
    }
}
