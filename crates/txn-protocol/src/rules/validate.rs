//! Validation: whether a read is still current.

use crate::document::{Image, View};
use crate::ids::{AttemptId, CommitVersion};
use crate::rule::{Rule, Rules};
use txn_store::Version;

/// The logical version of a document, as a transaction read it.
///
/// The logical version is the committed content, and the facts that identify this content. A
/// release of a lock and a touch change the store's version, but not the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The store's version; none if there was no document at all.
    pub version: Option<Version>,
    /// The commit that wrote the content.
    pub commit_version: Option<CommitVersion>,
    /// The committed content; none if the document does not exist. A placeholder has none.
    pub image: Option<Image>,
    /// The undecided holder of the lock at that version, if any.
    pub holder: Option<AttemptId>,
}

impl Observed {
    /// The logical version of a view.
    ///
    /// The lock of the view belongs to no committed transaction.
    pub fn of(view: &View) -> Self {
        match view {
            View::Absent => Self { version: None, commit_version: None, image: None, holder: None },
            View::Present { version, stored, .. } => Self {
                version: Some(*version),
                commit_version: stored.commit_version,
                image: (!stored.absent).then(|| stored.image.clone()),
                holder: stored.lock,
            },
        }
    }

    /// Whether both reads show the same logical version.
    ///
    /// The reads have the same non-null commit and the same bytes, or the same store version, or
    /// both show no document.
    pub fn same_logical_version(&self, other: &Self) -> bool {
        match (&self.image, &other.image) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                (self.commit_version.is_some()
                    && self.commit_version == other.commit_version
                    && a == b)
                    || (self.version.is_some() && self.version == other.version)
            }
            _ => false,
        }
    }
}

/// The result of validating a read.
///
/// The validation takes place after every lock is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// The read is still current.
    Valid,
    /// The document was changed: the closure starts again.
    Changed,
    /// Another attempt holds the document: a conflict.
    Held(AttemptId),
}

/// Compares a read with the document now. `me` is the lock of the transaction itself.
///
/// Under a lock is the content that was committed before. A holder other than the one of the read
/// has locked the present content. If that content is not the content that was read, a wait for the
/// holder is useless.
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
            commit_version: commit,
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
            (read(1, None, 1), read(2, None, 1), false), // null is no commit
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
        let stored =
            Stored { commit_version: Some(commit(1)), image: image(1), ..Stored::default() };
        let read = Observed::of(&view(1, stored.clone()));
        let absent = Observed::of(&View::Absent);
        let changed = Stored { commit_version: Some(commit(2)), ..stored.clone() };
        let locked = |lock| stored.locked_by(Some(lock));
        let met = Observed { holder: Some(other), ..Observed::of(&view(1, changed.clone())) };
        let changed_and_locked = |lock| changed.locked_by(Some(lock));
        for (read, now, expect) in [
            (&read, view(1, stored.clone()), Validity::Valid),
            (&read, view(7, stored.clone()), Validity::Valid),
            (&read, view(7, changed.clone()), Validity::Changed),
            // Changed by a transaction before the holder.
            (&read, view(7, changed_and_locked(other)), Validity::Changed),
            (&read, view(7, Stored::placeholder(other)), Validity::Changed),
            (&met, view(7, changed_and_locked(other)), Validity::Held(other)),
            // The content was read from the holder's record, and is not written in the document
            // yet.
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
