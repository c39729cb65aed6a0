//! The next step of one participant of a decided transaction.

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
    /// Remove the lock and keep the content, on this version.
    Unlock(Version),
    /// Delete a bare placeholder, on this version.
    RemovePlaceholder(Version),
    /// The participant seems applied, by a write that may still vanish. An acknowledged touch on
    /// this version proves it.
    Touch(Version),
    /// A later transaction wrote the document, but not over this transaction's content.
    ///
    /// A plain client removed the lock in between. Nothing can be written any more. An acknowledged
    /// touch on this version proves the loss, which has to be reported.
    Overtaken(Version),
    /// The document is gone, by a deletion that may still vanish.
    ///
    /// Proof: an acknowledged create of a placeholder under an aborted tid, and its acknowledged
    /// deletion.
    ProveAbsence,
    /// Another attempt holds the document, and a touch would prove nothing. That holder is decided
    /// first.
    Held(AttemptId),
    /// The document does not tell whether the participant was applied.
    ///
    /// A plain client moved or removed the lock, or a duplicate of the placeholder landed after a
    /// deletion. Only the owner may write: over the placeholder at this version, or as a new
    /// document. The owner must know that no deletion is on record, and that no other process has
    /// begun to apply the transaction.
    Unclear(Option<Version>),
    /// A later transaction inserted the document, which proves nothing about this transaction.
    ///
    /// If this transaction was never applied, it was overtaken. If it was applied, the document was
    /// deleted since. A touch on this version proves the rest.
    PerhapsOvertaken(Version),
    /// The commit can never be applied. The collection was dropped and made again.
    Elsewhere,
    /// Nothing is left to do.
    Done,
    /// A plain client wrote the document while it was locked.
    ///
    /// Either the lock is gone and the content is not this transaction's, or a placeholder has
    /// content. An operator must act.
    Damaged,
}

/// Whether a lock is the one that the participant's record names.
///
/// The lock is at `version`.
///
/// A conditional lock can land only once, so the tid identifies the lock. The `create` of a
/// placeholder can be duplicated, so only the recorded version identifies a placeholder.
///
/// The content under that lock is the content that was locked. A plain client that had read an
/// earlier lock put back a lock over any other content.
pub fn is_participants_lock(
    rules: &Rules,
    participant: &Participant,
    version: Version,
    stored: &Stored,
) -> bool {
    let by_version = participant.placeholder.is_none_or(|placeholder| placeholder == version);
    stored.commit_version == participant.before
        && (by_version || !rules.decides(Rule::PlaceholderVersion))
}

/// Whether the document has the participant's own lock.
///
/// Another lock of a committed transaction belongs to no participant.
pub fn is_locked_by(rules: &Rules, participant: &Participant, tid: AttemptId, now: &View) -> bool {
    match now {
        View::Present { version, stored, .. } if stored.lock == Some(tid) => {
            is_participants_lock(rules, participant, *version, stored)
        }
        View::Present { .. } | View::Absent => false,
    }
}

/// Whether the participant's transaction holds the document.
///
/// The transaction holds it by the participant's own lock. While the record is not finished
/// (`is_open`), a placeholder that was moved counts as well.
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

/// Whether the participant's placeholder differs from the acknowledged one.
///
/// A plain client rewrote the placeholder, or a duplicate landed late. Until the record is
/// finished, no process can tell which.
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
        && stored.commit_version == participant.before
        && rules.decides(Rule::MovedLock)
        && !is_locked_by(rules, participant, tid, now)
}

/// Whether the document is in another collection than the participant's lock.
fn stands_elsewhere(rules: &Rules, participant: &Participant, now: &View) -> bool {
    let View::Present { version, .. } = now else { return false };
    participant.is_elsewhere(version.incarnation) && rules.decides(Rule::SameCollection)
}

/// The known facts of a committed transaction, apart from its participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The attempt.
    pub tid: AttemptId,
    /// The commit version.
    pub commit: CommitVersion,
    /// Whether each participant is known to be applied.
    ///
    /// Then a missing participant was deleted since. Either the record is finished, or a later
    /// deletion of this document is on record.
    pub applied: bool,
    /// Whether the store has another collection of that name now ([`Participant::is_elsewhere`]).
    ///
    /// The question arises for absent documents only, because a document names its collection by
    /// its version.
    pub elsewhere: bool,
}

/// The next step of one participant of a committed transaction.
///
/// `locked`: the document as it was locked, if the owner applies.
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
                && !stored.recent.iter().chain(&stored.commit_version).any(|tid| *tid == commit)
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
            // Deleted by this transaction, or applied and then deleted by a later transaction.
            Op::Delete | Op::Write | Op::Insert => Applying::ProveAbsence,
        };
    };
    if !applied && is_moved_placeholder(rules, participant, tid, now) {
        return Applying::Unclear(Some(*version));
    }
    if stored.lock == Some(tid) {
        return match is_participants_lock(rules, participant, *version, stored) {
            true => under_own_lock(participant.op, tid, now, stored, *version),
            false => unlocking(now, tid),
        };
    }
    // No other transaction could write the document before the participant was applied. So another
    // commit version than the one under the lock says that the participant was applied. A later one
    // is not required, because commit versions do not grow over a deletion.
    let written_since = !stored.absent
        && stored.commit_version.is_some()
        && stored.commit_version != participant.before
        && (stored.commit_version >= Some(commit) || rules.decides(Rule::WrittenSince));
    match (participant.op, stored.lock) {
        (Op::Read, _) => Applying::Done,
        // A later holder has locked the content of this commit or of a later one. A touch keeps
        // that lock and waits for no holder. A bare placeholder is never touched, because only its
        // version makes it a lock.
        (Op::Write | Op::Insert | Op::Delete, _) if written_since => {
            followed(rules, committed, participant, locked, stored, *version)
        }
        (Op::Write | Op::Insert | Op::Delete, Some(holder)) => Applying::Held(holder),
        (Op::Write | Op::Insert | Op::Delete, None) => Applying::Damaged,
    }
}

/// The next step for a document under the lock of the participant.
fn under_own_lock(
    op: Op,
    tid: AttemptId,
    now: &View,
    stored: &Stored,
    version: Version,
) -> Applying {
    match op {
        Op::Write => Applying::Write(version),
        // At this version the placeholder was bare, or its owner has read the content that a plain
        // client added to it.
        Op::Insert if stored.absent => Applying::Write(version),
        Op::Delete => Applying::Delete(version),
        Op::Read if stored.absent => unlocking(now, tid),
        Op::Read => Applying::Unlock(version),
        Op::Insert => Applying::Damaged,
    }
}

/// The next step for content of this or a later commit.
///
/// The list of recent commits has the order of the commits, and begins again after a deletion
/// ([`super::recent`]). An owner that applies keeps its commit in the list. So a list without this
/// commit, but with a commit from under its lock, says that the later commits did not follow it.
/// Without the owner's knowledge two conditions are necessary. The list has the commit under the
/// lock, and the list has no later commit of the owner's process.
fn followed(
    rules: &Rules,
    committed: Committed,
    participant: &Participant,
    locked: Option<&View>,
    stored: &Stored,
    version: Version,
) -> Applying {
    let Committed { commit, applied, .. } = committed;
    let stands =
        |tid: &CommitVersion| stored.recent.contains(tid) || stored.commit_version == Some(*tid);
    let is_overtaken = match (locked, participant.before) {
        (Some(View::Present { stored: locked, .. }), before) => {
            locked.recent.iter().chain(&before).any(stands) && !stands(&commit)
        }
        (_, Some(before)) => {
            let place = stored.recent.iter().position(|tid| *tid == before);
            let since =
                place.map(|place| stored.recent[place + 1..].iter().chain(&stored.commit_version));
            since.is_some_and(|mut since| !since.any(|tid| tid.node() == commit.node()))
        }
        (_, None) => false,
    };
    if is_overtaken {
        return Applying::Overtaken(version);
    }
    let of_owner = || {
        stored.recent.iter().chain(&stored.commit_version).any(|tid| tid.node() == commit.node())
    };
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

/// The step that removes an unneeded lock.
///
/// The lock is that of an aborted transaction, or of no participant.
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
        let written_by =
            |t| Stored { commit_version: Some(t), image: image(1), ..Stored::default() };
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
            // A plain client put a lock back over the content of this commit or of a later one.
            (Op::Write, at(&put_back(commit)), Applying::Unlock(v)),
            (Op::Write, at(&put_back(after)), Applying::Unlock(v)),
            (Op::Delete, at(&put_back(after)), Applying::Unlock(v)),
            (Op::Insert, at(&put_back(after)), Applying::Unlock(v)),
            (Op::Write, at(&held), Applying::Held(other)),
            (Op::Write, at(&held_after), Applying::Touch(v)),
            (Op::Write, at(&Stored::placeholder(other)), Applying::Held(other)),
            (Op::Write, at(&written_by(commit)), Applying::Touch(v)),
            (Op::Write, at(&written_by(after)), Applying::Touch(v)),
            // Verdicts by the list of commits in a later content.
            (Op::Write, at(&listing(&[before, commit, after])), Applying::Touch(v)),
            (Op::Write, at(&listing(&[after])), Applying::Touch(v)),
            (Op::Write, at(&listing(&[before, after])), Applying::Overtaken(v)),
            (Op::Delete, at(&listing(&[before, after])), Applying::Overtaken(v)),
            // The own process removed the entry when it committed again.
            (Op::Write, at(&listing(&[before, own_later, after])), Applying::Touch(v)),
            // No earlier commit under the placeholder could be found in the list.
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
            // Inserted again, by a process with a slow clock.
            (Op::Delete, at(&written_by(long_before)), Applying::Touch(v)),
            (Op::Delete, at(&held_long_before), Applying::Touch(v)),
            (Op::Write, at(&written_by(long_before)), Applying::Touch(v)),
            (Op::Insert, at(&written_by(long_before)), Applying::Touch(v)),
            (Op::Delete, View::Absent, Applying::ProveAbsence),
            (Op::Insert, at(&placeholder), Applying::Write(v)),
            // Rewritten by a plain client, or a duplicate that landed after another transaction
            // deleted the document.
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
        // The owner of an insert finds the insert of another transaction.
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
        // Verdicts of the owner, which has locked the document.
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
