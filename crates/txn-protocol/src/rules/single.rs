//! A write without a record: the document itself tells whether it happened.

use super::validate::Observed;
use crate::document::View;
use crate::ids::CommitVersion;
use txn_store::Version;

/// What became of a one-document write that was not acknowledged, by what stands there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// The document is still as it was read: send the same write again.
    Resend,
    /// The write is in the list: an acknowledged touch on this version makes it committed.
    CommittedOnceTouched(Version),
    /// The list goes back to what was read, or to what stood in the list that was read, and the write is not in it: an
    /// acknowledged touch on this version makes sure that it never happens.
    NotAppliedOnceTouched(Version),
    /// The list does not go back far enough.
    Unknown,
}

/// `read` is what the write was conditioned on, `recent` the list of commits that stood there, `commit` the tid it carries.
///
/// Whoever shortens a list begins with the oldest, or with what it knows of itself ([`super::recent`]): so where any of those stands
/// that were there before it, this write was not taken out again.
pub fn settling(
    read: &Observed,
    recent: &[CommitVersion],
    commit: CommitVersion,
    now: &View,
) -> Settling {
    let View::Present { version, stored, .. } = now else { return Settling::Unknown };
    let stands = |tid: &CommitVersion| stored.recent.contains(tid) || stored.tid == Some(*tid);
    if stands(&commit) {
        return Settling::CommittedOnceTouched(*version);
    }
    if read.version == Some(*version) {
        return Settling::Resend;
    }
    match !stored.absent && recent.iter().chain(&read.tid).any(stands) {
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
            tid: Some(t),
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
            // Whoever wrote what was read took it out with its next commit.
            (view(4, stored(later, &[old, later])), Settling::NotAppliedOnceTouched(v)),
            (view(4, stored(later, &[later])), Settling::Unknown),
            (view(4, Stored::placeholder(tid(6, 0))), Settling::Unknown),
            (View::Absent, Settling::Unknown),
        ] {
            assert_eq!(settling(&read, &listed, commit, &now), expect, "{now:?}");
        }
    }
}
