//! What remains to be done to one document that a decided transaction may hold.

use crate::document::{Stored, View};
use crate::ids::{AttemptId, CommitVersion};
use crate::record::{Op, Participant};
use crate::rule::{Rule, Rules};
use txn_store::Version;

/// The next step of applying one participant of a committed transaction.
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
    /// A later transaction wrote the document, and not on top of this one's content: a plain client took the lock
    /// off in between. Nothing can be written any more; an acknowledged touch on this version proves it, and it has to be told.
    Overtaken(Version),
    /// The document is gone, by a deletion that may still vanish: create a placeholder under an
    /// aborted tid and delete it; acknowledged, that proves it.
    ProveAbsence,
    /// Somebody else holds it now, and a touch would prove nothing: that holder is decided first.
    Held(AttemptId),
    /// Whether the participant was applied cannot be told from what stands there: a plain client
    /// moved or removed its lock, or a duplicate of its placeholder landed behind a deletion. Only
    /// an owner that knows of no deletion on record, and that nobody else has begun to apply it,
    /// may write: over the placeholder at this version, or where no document is.
    Unclear(Option<Version>),
    /// A later transaction inserted the document, which says nothing of this one. If this one was
    /// never applied it was overtaken; if it was, it was deleted since. A touch on this version
    /// proves the rest.
    PerhapsOvertaken(Version),
    /// The collection was dropped and made again: the commit can never be applied there.
    Elsewhere,
    /// Nothing is left to do.
    Done,
    /// A plain client wrote the document while it was locked: the lock is gone, and the content is
    /// not this transaction's, or a placeholder has content. A person must look.
    Damaged,
}

/// Whether a lock of the transaction that stands at `version` is the one that the participant's record
/// speaks of. A conditional lock can land only once, so the tid identifies it; a placeholder's
/// `create` can be forked, so only its recorded version does.
///
/// While it stands the content under it is what was locked: a lock on any other was put back by a plain client that
/// had read it before.
pub fn is_participants_lock(
    rules: &Rules,
    participant: &Participant,
    version: Version,
    stored: &Stored,
) -> bool {
    let by_version = participant.placeholder.is_none_or(|placeholder| placeholder == version);
    stored.tid == participant.before && (by_version || !rules.decides(Rule::PlaceholderVersion))
}

/// Whether what stands there is the participant's own lock. A lock of a committed transaction that is no participant's is nobody's.
pub fn is_locked_by(rules: &Rules, participant: &Participant, tid: AttemptId, now: &View) -> bool {
    match now {
        View::Present { version, stored, .. } if stored.lock == Some(tid) => {
            is_participants_lock(rules, participant, *version, stored)
        }
        View::Present { .. } | View::Absent => false,
    }
}

/// Whether the participant's transaction holds what stands there: by the participant's own lock or,
/// as long as the record is not finished (`is_open`), by its placeholder that was moved.
pub fn is_held_by(
    rules: &Rules,
    participant: &Participant,
    tid: AttemptId,
    is_open: bool,
    now: &View,
) -> bool {
    is_locked_by(rules, participant, tid, now)
        || is_open && is_moved_placeholder(rules, participant, tid, now)
}

/// Whether a placeholder of the transaction stands where the participant is inserted, and not as it
/// was acknowledged: a plain client rewrote it, or a duplicate landed late. Until the record is
/// finished nobody can tell.
fn is_moved_placeholder(
    rules: &Rules,
    participant: &Participant,
    tid: AttemptId,
    now: &View,
) -> bool {
    let View::Present { stored, .. } = now else { return false };
    participant.op == Op::Insert
        && stored.lock == Some(tid)
        && stored.absent
        && !stands_elsewhere(rules, participant, now)
        && stored.tid == participant.before
        && rules.decides(Rule::MovedLock)
        && !is_locked_by(rules, participant, tid, now)
}

/// Whether the document is in another collection than the participant's lock.
fn stands_elsewhere(rules: &Rules, participant: &Participant, now: &View) -> bool {
    let View::Present { version, .. } = now else { return false };
    participant.is_elsewhere(version.incarnation) && rules.decides(Rule::SameCollection)
}

/// What is known of a committed transaction apart from its participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its attempt.
    pub tid: AttemptId,
    /// The version of what it writes.
    pub commit: CommitVersion,
    /// Whether each participant is known to be applied, so that what is missing was deleted since:
    /// the record is finished, or a later deletion of this document is on record.
    pub applied: bool,
    /// Whether the store has another collection of that name now ([`Participant::is_elsewhere`]).
    /// Asked for absent documents only: a document names its collection by its version.
    pub elsewhere: bool,
}

/// One participant of a committed transaction. `locked`: the document as it was locked, if the
/// owner applies it.
pub fn applying(
    rules: &Rules,
    committed: Committed,
    participant: &Participant,
    locked: Option<&View>,
    now: &View,
) -> Applying {
    let Committed { tid, commit, applied, elsewhere } = committed;
    // A restored copy may hold the commit or the lock of the participant.
    let is_lost = match now {
        View::Present { stored, .. } => {
            stands_elsewhere(rules, participant, now)
                && !is_locked_by(rules, participant, tid, now)
                && !stored.recent.iter().chain(&stored.tid).any(|tid| *tid == commit)
        }
        View::Absent => elsewhere && rules.decides(Rule::SameCollection),
    };
    if is_lost && participant.op != Op::Read {
        return Applying::Elsewhere;
    }
    let View::Present { version, stored, .. } = now else {
        return match participant.op {
            Op::Read => Applying::Done,
            Op::Write | Op::Insert if !applied && rules.decides(Rule::MovedLock) => {
                Applying::Unclear(None)
            }
            _ if !rules.decides(Rule::ProveAbsence) => Applying::Done,
            // Deleted by us, or applied and then deleted by a later transaction.
            Op::Delete | Op::Write | Op::Insert => Applying::ProveAbsence,
        };
    };
    if !applied && is_moved_placeholder(rules, participant, tid, now) {
        return Applying::Unclear(Some(*version));
    }
    if stored.lock == Some(tid) {
        if is_participants_lock(rules, participant, *version, stored) {
            return match participant.op {
                Op::Write => Applying::Write(*version),
                // At this version it was bare; or its owner has seen what a plain client added to
                // it.
                Op::Insert if stored.absent => Applying::Write(*version),
                Op::Delete => Applying::Delete(*version),
                Op::Read if stored.absent => unlocking(now, tid),
                Op::Read => Applying::Unlock(*version),
                Op::Insert => Applying::Damaged,
            };
        }
        return unlocking(now, tid);
    }
    // As long as the participant was not applied nobody else could write the document, so that another tid than
    // the one under the lock says that it was. Not a later one: a tid does not grow over a deletion.
    let written_since = !stored.absent
        && stored.tid.is_some()
        && stored.tid != participant.before
        && (stored.tid >= Some(commit) || rules.decides(Rule::WrittenSince));
    match (participant.op, stored.lock) {
        (Op::Read, _) => Applying::Done,
        // Whoever locked it after us locked what we or others left behind. A touch keeps that lock, and waits for
        // nobody; a placeholder alone is never touched, for only its version makes it a lock.
        (Op::Write | Op::Insert | Op::Delete, _) if written_since => {
            followed(rules, committed, participant, locked, stored, *version)
        }
        (Op::Write | Op::Insert | Op::Delete, Some(holder)) => Applying::Held(holder),
        (Op::Write | Op::Insert | Op::Delete, None) => Applying::Damaged,
    }
}

/// The content is the commit's or another one's since. The list of recent commits is in their order, and begins anew after a deletion
/// ([`super::recent`]). An owner that applies keeps its commit in it: a list of which something stood under our lock, and that lacks
/// our commit, says that the others did not follow it. To whom the owner is gone it says so if it holds the commit under our lock, and
/// behind it none of the owner's process.
fn followed(
    rules: &Rules,
    committed: Committed,
    participant: &Participant,
    locked: Option<&View>,
    stored: &Stored,
    version: Version,
) -> Applying {
    let Committed { commit, applied, .. } = committed;
    let stands = |tid: &CommitVersion| stored.recent.contains(tid) || stored.tid == Some(*tid);
    let is_overtaken = match (locked, participant.before) {
        (Some(View::Present { stored: locked, .. }), before) => {
            locked.recent.iter().chain(&before).any(stands) && !stands(&commit)
        }
        (_, Some(before)) => {
            let place = stored.recent.iter().position(|tid| *tid == before);
            let since = place.map(|place| stored.recent[place + 1..].iter().chain(&stored.tid));
            since.is_some_and(|mut since| !since.any(|tid| tid.node() == commit.node()))
        }
        (_, None) => false,
    };
    if is_overtaken {
        return Applying::Overtaken(version);
    }
    let of_owner =
        || stored.recent.iter().chain(&stored.tid).any(|tid| tid.node() == commit.node());
    if participant.op == Op::Insert
        && locked.is_some()
        && !applied
        && !of_owner()
        && rules.decides(Rule::MovedLock)
    {
        return Applying::PerhapsOvertaken(version);
    }
    if !rules.decides(Rule::TouchApplied) {
        return Applying::Done;
    }
    Applying::Touch(version)
}

/// A lock of an aborted transaction, or one that is no participant's: take it off.
pub fn unlocking(now: &View, tid: AttemptId) -> Applying {
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
    use super::super::testing::{commit, commit_of, image, tid, version, view};
    use super::*;

    #[test]
    fn every_row() {
        let (me, other) = (tid(3, 0), tid(4, 0));
        let [long_before, before, commit, own_later] = [1, 2, 5, 8].map(commit);
        let after = commit_of(1, 7);
        let participant = |op| Participant {
            collection: "c".into(),
            id: "i".into(),
            routing: None,
            op,
            expected: None,
            placeholder: (op == Op::Insert).then(|| version(8)),
            before: (op != Op::Insert).then_some(before),
        };
        let written_by = |t| Stored { tid: Some(t), image: image(1), ..Stored::default() };
        let unversioned = Stored { image: image(1), ..Stored::default() };
        let locked = written_by(before).locked_by(Some(me));
        let held = written_by(before).locked_by(Some(other));
        let held_long_before = written_by(long_before).locked_by(Some(other));
        let held_after = written_by(after).locked_by(Some(other));
        let listing =
            |recent: &[CommitVersion]| Stored { recent: recent.into(), ..written_by(after) };
        let put_back = |t| written_by(t).locked_by(Some(me));
        let placeholder = Stored::placeholder(me);
        let filled = Stored { image: image(1), ..Stored::placeholder(me) };
        let at = |stored: &Stored| view(8, stored.clone());
        let v = version(8);
        let committed = Committed { tid: me, commit, applied: false, elsewhere: false };
        for (op, now, expect) in [
            (Op::Write, at(&locked), Applying::Write(v)),
            // A lock that a plain client brought back, on what the commit or a later one left behind.
            (Op::Write, at(&put_back(commit)), Applying::Unlock(v)),
            (Op::Write, at(&put_back(after)), Applying::Unlock(v)),
            (Op::Delete, at(&put_back(after)), Applying::Unlock(v)),
            (Op::Insert, at(&put_back(after)), Applying::Unlock(v)),
            (Op::Write, at(&held), Applying::Held(other)),
            (Op::Write, at(&held_after), Applying::Touch(v)),
            (Op::Write, at(&Stored::placeholder(other)), Applying::Held(other)),
            (Op::Write, at(&written_by(commit)), Applying::Touch(v)),
            (Op::Write, at(&written_by(after)), Applying::Touch(v)),
            // What the list of commits says of a later one.
            (Op::Write, at(&listing(&[before, commit, after])), Applying::Touch(v)),
            (Op::Write, at(&listing(&[after])), Applying::Touch(v)),
            (Op::Write, at(&listing(&[before, after])), Applying::Overtaken(v)),
            (Op::Delete, at(&listing(&[before, after])), Applying::Overtaken(v)),
            // Taken out by its own process, which committed again.
            (Op::Write, at(&listing(&[before, own_later, after])), Applying::Touch(v)),
            // Nothing was under the placeholder that could be found again.
            (Op::Insert, at(&listing(&[before, after])), Applying::Touch(v)),
            (
                Op::Write,
                at(&listing(&[before, after]).locked_by(Some(other))),
                Applying::Overtaken(v),
            ),
            (Op::Write, at(&written_by(before)), Applying::Damaged),
            (Op::Write, at(&unversioned), Applying::Damaged),
            (Op::Write, View::Absent, Applying::Unclear(None)),
            (Op::Delete, at(&locked), Applying::Delete(v)),
            (Op::Delete, at(&held), Applying::Held(other)),
            (Op::Delete, at(&held_after), Applying::Touch(v)),
            (Op::Delete, at(&Stored::placeholder(other)), Applying::Held(other)),
            (Op::Delete, at(&written_by(after)), Applying::Touch(v)),
            (Op::Delete, at(&written_by(before)), Applying::Damaged),
            (Op::Delete, at(&unversioned), Applying::Damaged),
            // Inserted again, by a process whose clock is behind.
            (Op::Delete, at(&written_by(long_before)), Applying::Touch(v)),
            (Op::Delete, at(&held_long_before), Applying::Touch(v)),
            (Op::Write, at(&written_by(long_before)), Applying::Touch(v)),
            (Op::Insert, at(&written_by(long_before)), Applying::Touch(v)),
            (Op::Delete, View::Absent, Applying::ProveAbsence),
            (Op::Insert, at(&placeholder), Applying::Write(v)),
            // Rewritten by a plain client, or a forked duplicate that landed after another
            // transaction deleted the document.
            (Op::Insert, view(9, placeholder.clone()), Applying::Unclear(Some(version(9)))),
            (Op::Insert, view(9, filled.clone()), Applying::Unclear(Some(version(9)))),
            (Op::Insert, at(&filled), Applying::Write(v)),
            (Op::Insert, at(&unversioned.locked_by(Some(other))), Applying::Held(other)),
            (Op::Insert, at(&held_after), Applying::Touch(v)),
            (Op::Insert, at(&written_by(commit)), Applying::Touch(v)),
            (Op::Insert, at(&unversioned), Applying::Damaged),
            (Op::Insert, View::Absent, Applying::Unclear(None)),
            (Op::Read, at(&locked), Applying::Unlock(v)),
            (Op::Read, at(&placeholder), Applying::RemovePlaceholder(v)),
            (Op::Read, at(&held), Applying::Done),
            (Op::Read, at(&written_by(before)), Applying::Done),
            (Op::Read, View::Absent, Applying::Done),
        ] {
            let does = applying(&Rules::all(), committed, &participant(op), None, &now);
            assert_eq!(does, expect, "{op:?} {now:?}");
        }
        // All participants are known to be applied.
        for (op, now, expect) in [
            (Op::Insert, at(&placeholder), Applying::Write(v)),
            (Op::Insert, view(9, placeholder.clone()), Applying::RemovePlaceholder(version(9))),
            (Op::Insert, view(9, filled.clone()), Applying::Damaged),
            (Op::Insert, View::Absent, Applying::ProveAbsence),
            (Op::Write, View::Absent, Applying::ProveAbsence),
            (Op::Write, at(&locked), Applying::Write(v)),
        ] {
            let committed = Committed { applied: true, ..committed };
            let does = applying(&Rules::all(), committed, &participant(op), None, &now);
            assert_eq!(does, expect, "{op:?} {now:?}, applied");
        }
        // The owner of an insert finds that of another transaction.
        for (now, expect) in [
            (listing(&[after]), Applying::PerhapsOvertaken(v)),
            (listing(&[commit, after]), Applying::Touch(v)),
            (listing(&[own_later, after]), Applying::Touch(v)),
        ] {
            let (owned, participant) = (Some(at(&placeholder)), participant(Op::Insert));
            let does = applying(&Rules::all(), committed, &participant, owned.as_ref(), &at(&now));
            assert_eq!(does, expect, "the owner of an insert: {now:?}");
        }
        // The collection was made again: only a restored copy holds the lock or the commit.
        let here = |version: Version| Version { incarnation: 1, ..version };
        let again = |stored: &Stored| View::Present {
            version: Version { incarnation: 2, ..v },
            source: "{}".into(),
            stored: stored.clone(),
        };
        let lost = Applying::Elsewhere;
        let in_the_copy = Version { incarnation: 2, ..v };
        for (op, now, expect) in [
            (Op::Write, again(&written_by(after)), lost),
            (Op::Write, again(&written_by(before)), lost),
            (Op::Write, again(&unversioned), lost),
            (Op::Write, again(&Stored::placeholder(other)), lost),
            (Op::Write, View::Absent, lost),
            (Op::Write, again(&locked), Applying::Write(in_the_copy)),
            (Op::Write, again(&written_by(commit)), Applying::Touch(in_the_copy)),
            (Op::Write, again(&listing(&[commit, after])), Applying::Touch(in_the_copy)),
            (Op::Delete, again(&written_by(after)), lost),
            (Op::Delete, View::Absent, lost),
            (Op::Insert, again(&written_by(after)), lost),
            (Op::Insert, again(&placeholder), lost),
            (Op::Insert, View::Absent, lost),
            (Op::Read, again(&written_by(after)), Applying::Done),
            (Op::Read, View::Absent, Applying::Done),
        ] {
            let participant = participant(op);
            let participant = Participant {
                expected: (op != Op::Insert).then(|| here(version(7))),
                placeholder: participant.placeholder.map(here),
                ..participant
            };
            for applied in [false, true] {
                let committed = Committed { applied, elsewhere: true, ..committed };
                let does = applying(&Rules::all(), committed, &participant, None, &now);
                assert_eq!(does, expect, "{op:?} {now:?}, made again, applied {applied}");
            }
            let is_open = is_held_by(&Rules::all(), &participant, me, true, &now);
            assert_eq!(is_open, matches!(expect, Applying::Write(_)), "{op:?} {now:?}");
        }
        // What the owner knows that has locked the document.
        let under = Stored { recent: [long_before, before].into(), ..locked.clone() };
        for (now, expect) in [
            (listing(&[long_before, before, after]), Applying::Overtaken(v)),
            (listing(&[long_before, after]), Applying::Overtaken(v)),
            (listing(&[long_before, own_later]), Applying::Overtaken(v)),
            (listing(&[long_before, commit, after]), Applying::Touch(v)),
            (listing(&[after]), Applying::Touch(v)),
        ] {
            let owned = Some(at(&under));
            let participant = participant(Op::Write);
            let does = applying(&Rules::all(), committed, &participant, owned.as_ref(), &at(&now));
            assert_eq!(does, expect, "the owner: {now:?}");
        }
        for (now, expect) in [
            (at(&locked), Applying::Unlock(v)),
            (at(&placeholder), Applying::RemovePlaceholder(v)),
            (at(&filled), Applying::Damaged),
            (at(&held), Applying::Done),
            (at(&unversioned), Applying::Done),
            (View::Absent, Applying::Done),
        ] {
            assert_eq!(unlocking(&now, me), expect, "{now:?}");
        }
    }
}
