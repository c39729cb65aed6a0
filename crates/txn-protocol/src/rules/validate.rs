//! Is a read still what it was?

use crate::document::{Image, View};
use crate::ids::{AttemptId, CommitVersion};
use crate::rule::{Rule, Rules};
use txn_store::Version;

/// The logical version of a document, as a transaction read it: the committed content, and what
/// identifies it. Versions of the store move without content moving (a lock that is taken off, a touch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The store's version; none if there was no document at all.
    pub version: Option<Version>,
    /// The commit that wrote the content.
    pub tid: Option<CommitVersion>,
    /// The committed content; none if the document does not exist (a placeholder may stand there).
    pub image: Option<Image>,
    /// The undecided holder whose lock the version carried, if it carried one.
    pub holder: Option<AttemptId>,
}

impl Observed {
    /// What a view shows when its lock, if any, belongs to no committed transaction.
    pub fn of(view: &View) -> Self {
        match view {
            View::Absent => Self { version: None, tid: None, image: None, holder: None },
            View::Present { version, stored, .. } => Self {
                version: Some(*version),
                tid: stored.tid,
                image: (!stored.absent).then(|| stored.image.clone()),
                holder: stored.lock,
            },
        }
    }

    /// Same non-null commit and same bytes, or else the same version as a pair; absent equals absent.
    pub fn same_logical_version(&self, other: &Self) -> bool {
        match (&self.image, &other.image) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                (self.tid.is_some() && self.tid == other.tid && a == b)
                    || (self.version.is_some() && self.version == other.version)
            }
            _ => false,
        }
    }
}

/// What a second look, after every lock is acknowledged, says about a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It is still what it was.
    Valid,
    /// It was changed: the closure starts again.
    Changed,
    /// Somebody else holds it: a conflict.
    Held(AttemptId),
}

/// Compares a read with what stands there now; `me` is the lock of the transaction itself.
///
/// Under a lock stands what was committed before, and another holder than the one that was met has locked what is there now: if that
/// is not what was read, then nothing is worth waiting for.
pub fn validity(rules: &Rules, read: &Observed, now: &View, me: Option<AttemptId>) -> Validity {
    let others = |holder: &AttemptId| Some(*holder) != me && rules.decides(Rule::ValidateHolders);
    let is_same = read.same_logical_version(&Observed::of(now));
    match now.holder().filter(others) {
        Some(holder) if is_same || read.holder == Some(holder) => Validity::Held(holder),
        None if is_same => Validity::Valid,
        _ => Validity::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{commit, image, tid, version, view};
    use super::*;
    use crate::document::Stored;

    #[test]
    fn logical_versions() {
        let read = |seq: u64, commit: Option<CommitVersion>, n: u64| Observed {
            version: Some(version(seq)),
            tid: commit,
            image: Some(image(n)),
            holder: None,
        };
        let [c1, c2] = [1, 2].map(|age| Some(commit(age)));
        let absent = Observed::of(&View::Absent);
        for (a, b, same) in [
            (read(1, c1, 1), read(2, c1, 1), true), // moved, same commit and bytes
            (read(1, c1, 1), read(2, c1, 9), false), // a plain client's partial update kept the tid
            (read(1, c1, 1), read(2, c2, 1), false), // another commit wrote the same bytes
            (read(1, None, 1), read(1, None, 1), true),
            (read(1, None, 1), read(2, None, 1), false), // null is nobody's commit
            (absent.clone(), absent.clone(), true),
            (absent.clone(), read(1, c1, 1), false),
        ] {
            assert_eq!(a.same_logical_version(&b), same, "{a:?} {b:?}");
            assert_eq!(b.same_logical_version(&a), same, "{b:?} {a:?}");
        }
        let mut other_term = read(1, None, 1);
        other_term.version = Some(Version::new(2, 1));
        assert!(!read(1, None, 1).same_logical_version(&other_term), "a seq_no used again");
    }

    #[test]
    fn every_row() {
        let me = tid(3, 0);
        let (other, third) = (tid(4, 0), tid(5, 0));
        let stored = Stored { tid: Some(commit(1)), image: image(1), ..Stored::default() };
        let read = Observed::of(&view(1, stored.clone()));
        let absent = Observed::of(&View::Absent);
        let changed = Stored { tid: Some(commit(2)), ..stored.clone() };
        let locked = |lock| stored.locked_by(Some(lock));
        let met = Observed { holder: Some(other), ..Observed::of(&view(1, changed.clone())) };
        let changed_and_locked = |lock| changed.locked_by(Some(lock));
        for (read, now, expect) in [
            (&read, view(1, stored.clone()), Validity::Valid),
            (&read, view(7, stored.clone()), Validity::Valid),
            (&read, view(7, changed.clone()), Validity::Changed),
            // By whoever was before the holder.
            (&read, view(7, changed_and_locked(other)), Validity::Changed),
            (&read, view(7, Stored::placeholder(other)), Validity::Changed),
            (&met, view(7, changed_and_locked(other)), Validity::Held(other)),
            // The content of a commit that was read from its record: it is not written there yet.
            (&met, view(7, locked(other)), Validity::Held(other)),
            (&met, view(7, locked(third)), Validity::Changed),
            (&absent, view(7, locked(other)), Validity::Changed),
            (&read, View::Absent, Validity::Changed),
            (&read, view(7, locked(me)), Validity::Valid),
            (&read, view(7, locked(other)), Validity::Held(other)),
            (&absent, View::Absent, Validity::Valid),
            (&absent, view(7, stored.clone()), Validity::Changed),
            (&absent, view(7, Stored::placeholder(other)), Validity::Held(other)),
            (&absent, view(7, Stored::placeholder(me)), Validity::Valid),
        ] {
            assert_eq!(validity(&Rules::all(), read, &now, Some(me)), expect, "{read:?} {now:?}");
        }
        let now = view(2, locked(other));
        assert_eq!(validity(&Rules::all(), &read, &now, None), Validity::Held(other));
    }
}
