//! What remains to be done to one document that a decided transaction may hold.

use crate::document::View;
use crate::record::{Member, Op};
use crate::store::Version;
use crate::tid::Tid;

/// The next step of applying one member of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applying {
    /// Write the new content, without the lock, on this version.
    Write(Version),
    /// Delete the document on this version.
    Delete(Version),
    /// Take the lock off, keeping the content, on this version.
    Unlock(Version),
    /// Delete a bare placeholder, on this version.
    RemovePlaceholder(Version),
    /// It seems done, by a write that may still vanish: an acknowledged touch on this version proves it.
    Touch(Version),
    /// The document is gone, by a deletion that may still vanish: create a placeholder under an
    /// aborted tid and delete it; acknowledged, that proves it.
    ProveAbsence,
    /// Somebody else holds it now, and a touch would prove nothing: that holder is decided first.
    Held(Tid),
    /// Nothing is left to do.
    Done,
    /// A plain client wrote the document while it was locked: the lock is gone, and the content is
    /// not this transaction's, or a placeholder has content. A person must look.
    Damaged,
}

/// Whether a lock of the transaction that stands at `version` is the one that the member's record
/// speaks of. A conditional lock can land only once, so the tid identifies it; a placeholder's
/// `create` can be forked, so only its recorded version does.
pub fn is_members_lock(member: &Member, version: Version) -> bool {
    member.placeholder.is_none_or(|placeholder| placeholder == version)
}

/// One member of the transaction `tid`, committed as `commit`.
pub fn applying(tid: Tid, commit: Tid, member: &Member, now: &View) -> Applying {
    let View::Present { version, stored, .. } = now else {
        return match member.op {
            Op::Read => Applying::Done,
            // Deleted by us, or applied and then deleted by a later transaction.
            Op::Delete | Op::Write | Op::Insert => Applying::ProveAbsence,
        };
    };
    if stored.lock == Some(tid) {
        if is_members_lock(member, *version) {
            return match member.op {
                Op::Write => Applying::Write(*version),
                Op::Insert if stored.is_bare_placeholder() => Applying::Write(*version),
                Op::Delete => Applying::Delete(*version),
                Op::Read if stored.absent => voiding(now, tid),
                Op::Read => Applying::Unlock(*version),
                Op::Insert => Applying::Damaged,
            };
        }
        return voiding(now, tid);
    }
    match (member.op, stored.lock) {
        (Op::Read, _) => Applying::Done,
        // Whoever locked it after us locked what we left behind. A touch keeps that lock, and waits for nobody;
        // a placeholder alone is never touched, for only its version makes it a lock.
        (Op::Write | Op::Insert, Some(_)) if !stored.absent && stored.tid >= Some(commit) => {
            Applying::Touch(*version)
        }
        (Op::Delete, Some(_)) if !stored.absent && stored.tid > Some(commit) => {
            Applying::Touch(*version)
        }
        (_, Some(holder)) => Applying::Held(holder),
        // A later document under the same id, after our deletion.
        (Op::Delete, None) if stored.tid > Some(commit) => Applying::Touch(*version),
        (Op::Write | Op::Insert, None) if stored.tid >= Some(commit) => Applying::Touch(*version),
        (Op::Write | Op::Insert | Op::Delete, None) => Applying::Damaged,
    }
}

/// A lock of an aborted transaction, or one that is no member's: take it off.
pub fn voiding(now: &View, tid: Tid) -> Applying {
    match now {
        View::Present { version, stored, .. } if stored.lock == Some(tid) => {
            if stored.is_bare_placeholder() {
                Applying::RemovePlaceholder(*version)
            } else if stored.absent {
                Applying::Damaged
            } else {
                Applying::Unlock(*version)
            }
        }
        _ => Applying::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{image, tid, version, view};
    use super::*;
    use crate::document::Stored;

    #[test]
    fn every_row() {
        let (me, commit, other) = (tid(3, 0), tid(5, 0), tid(4, 0));
        let (before, after) = (tid(2, 0), tid(7, 0));
        let member = |op| Member {
            collection: "c".into(),
            id: "i".into(),
            routing: None,
            op,
            expected: None,
            placeholder: (op == Op::Insert).then(|| version(8)),
        };
        let written_by = |t| Stored { tid: Some(t), image: image(1), ..Stored::default() };
        let unversioned = Stored { image: image(1), ..Stored::default() };
        let locked = written_by(before).locked_by(Some(me));
        let held = written_by(before).locked_by(Some(other));
        let held_after = written_by(after).locked_by(Some(other));
        let placeholder = Stored::placeholder(me);
        let filled = Stored { image: image(1), ..Stored::placeholder(me) };
        let at = |stored: &Stored| view(8, stored.clone());
        let v = version(8);
        for (op, now, expect) in [
            (Op::Write, at(&locked), Applying::Write(v)),
            (Op::Write, at(&held), Applying::Held(other)),
            (Op::Write, at(&held_after), Applying::Touch(v)),
            (Op::Write, at(&Stored::placeholder(other)), Applying::Held(other)),
            (Op::Write, at(&written_by(commit)), Applying::Touch(v)),
            (Op::Write, at(&written_by(after)), Applying::Touch(v)),
            (Op::Write, at(&written_by(before)), Applying::Damaged),
            (Op::Write, at(&unversioned), Applying::Damaged),
            (Op::Write, View::Absent, Applying::ProveAbsence),
            (Op::Delete, at(&locked), Applying::Delete(v)),
            (Op::Delete, at(&held), Applying::Held(other)),
            (Op::Delete, at(&held_after), Applying::Touch(v)),
            (Op::Delete, at(&Stored::placeholder(other)), Applying::Held(other)),
            (Op::Delete, at(&written_by(after)), Applying::Touch(v)),
            (Op::Delete, at(&written_by(before)), Applying::Damaged),
            (Op::Delete, View::Absent, Applying::ProveAbsence),
            (Op::Insert, at(&placeholder), Applying::Write(v)),
            // A forked duplicate that landed after the transaction finished and another deleted the document.
            (Op::Insert, view(9, placeholder.clone()), Applying::RemovePlaceholder(version(9))),
            (Op::Insert, view(9, filled.clone()), Applying::Damaged),
            (Op::Insert, at(&filled), Applying::Damaged),
            (Op::Insert, at(&held), Applying::Held(other)),
            (Op::Insert, at(&held_after), Applying::Touch(v)),
            (Op::Insert, at(&written_by(commit)), Applying::Touch(v)),
            (Op::Insert, at(&written_by(before)), Applying::Damaged),
            (Op::Insert, View::Absent, Applying::ProveAbsence),
            (Op::Read, at(&locked), Applying::Unlock(v)),
            (Op::Read, at(&placeholder), Applying::RemovePlaceholder(v)),
            (Op::Read, at(&held), Applying::Done),
            (Op::Read, at(&written_by(before)), Applying::Done),
            (Op::Read, View::Absent, Applying::Done),
        ] {
            assert_eq!(applying(me, commit, &member(op), &now), expect, "{op:?} {now:?}");
        }
        for (now, expect) in [
            (at(&locked), Applying::Unlock(v)),
            (at(&placeholder), Applying::RemovePlaceholder(v)),
            (at(&filled), Applying::Damaged),
            (at(&held), Applying::Done),
            (at(&unversioned), Applying::Done),
            (View::Absent, Applying::Done),
        ] {
            assert_eq!(voiding(&now, me), expect, "{now:?}");
        }
    }
}
