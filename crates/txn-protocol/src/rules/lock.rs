//! The next step towards a lock, by the state of the document.

use super::apply::is_participants_lock;
use super::validate::Observed;
use crate::document::View;
use crate::ids::AttemptId;
use crate::record::{Op, Participant};
use crate::rule::{Rule, Rules};
use txn_store::Version;

/// The next step towards one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// Create a placeholder: there is no document.
    CreatePlaceholder,
    /// Lock the document on this version.
    LockAt(Version),
    /// Touch the unacknowledged lock on this version.
    Settle(Version),
    /// Another attempt holds the document: a conflict.
    Held(AttemptId),
    /// The content is not the content that the closure read: start again.
    Changed,
}

/// The next step towards a lock of `me`.
///
/// `read`: the read of the closure, if the closure read the document. `now` comes from the primary,
/// or is the view that was read. For an insert, `now` may also be an absence without any read: the
/// create that locks the document proves the absence, or fails.
pub fn locking(rules: &Rules, me: AttemptId, read: Option<&Observed>, now: &View) -> Locking {
    match now.holder() {
        Some(holder) if holder != me => return Locking::Held(holder),
        _ => {}
    }
    if rules.decides(Rule::LockWhatWasRead)
        && read.is_some_and(|read| !read.same_logical_version(&Observed::of(now)))
    {
        return Locking::Changed;
    }
    match now {
        View::Absent => Locking::CreatePlaceholder,
        View::Present { version, stored, .. } if stored.lock.is_some() => Locking::Settle(*version),
        View::Present { version, .. } => Locking::LockAt(*version),
    }
}

/// The next step of a hand-off: a lock that overwrites an own unapplied commit.
///
/// A single write carries the commit's content and the new lock. Other processes see a document
/// that was applied and locked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffStep {
    /// Write the commit's content under the lock, on this version.
    Content(Version),
    /// Write a bare placeholder under the lock, on this version. The commit deletes the document.
    Placeholder(Version),
    /// Keep the content under the lock, on this version. The commit only read the document.
    Keep(Version),
}

/// Adapts a read for a hand-off from the read commit.
///
/// At the version of the commit's own lock the document has the content before the commit. So the
/// version identifies no content.
#[must_use]
pub fn read_of_commit(rules: &Rules, read: Observed) -> Observed {
    match rules.decides(Rule::HandoffByCommit) {
        true => Observed { version: None, ..read },
        false => read,
    }
}

/// The next step of a hand-off from the transaction `tid`.
///
/// `acknowledged`: this process received the acknowledgement of that transaction's `committed`
/// record. `participant`: the document's entry in that record. Returns none if the lock is not that
/// participant's lock. The caller then treats the lock as any other.
pub fn handoff_step(
    rules: &Rules,
    tid: AttemptId,
    acknowledged: bool,
    participant: &Participant,
    now: &View,
) -> Option<HandoffStep> {
    let View::Present { version, stored, .. } = now else { return None };
    if !acknowledged && rules.decides(Rule::HandoffAcknowledged) || stored.lock != Some(tid) {
        return None;
    }
    if !is_participants_lock(rules, participant, *version, stored)
        && rules.decides(Rule::HandoffOwnLock)
    {
        return None;
    }
    match participant.op {
        Op::Write => Some(HandoffStep::Content(*version)),
        Op::Insert if stored.is_bare_placeholder() => Some(HandoffStep::Content(*version)),
        // A plain client wrote into it: an operator must act.
        Op::Insert => None,
        Op::Delete => Some(HandoffStep::Placeholder(*version)),
        Op::Read => Some(HandoffStep::Keep(*version)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{commit, image, tid, version, view};
    use super::*;
    use crate::document::Stored;

    #[test]
    fn read_under_the_lock_is_not_the_commit() {
        let (me, holder) = (tid(3, 0), tid(2, 0));
        let before =
            Stored { commit_version: Some(commit(1)), image: image(1), ..Stored::default() };
        let read = Observed::of(&view(7, before.locked_by(Some(holder))));
        let commit =
            Stored { commit_version: Some(commit(2)), image: image(2), ..Stored::default() };
        let over = view(7, commit);
        let rules = Rules::all();
        let asks = |read| locking(&rules, me, Some(&read_of_commit(&rules, read)), &over);
        assert_eq!(asks(read), Locking::Changed);
        let read = Observed { holder: Some(holder), ..Observed::of(&over) };
        assert_eq!(asks(read), Locking::LockAt(version(7)));
    }

    #[test]
    fn every_row() {
        let (me, other) = (tid(3, 1), tid(2, 0));
        let stored =
            Stored { commit_version: Some(commit(1)), image: image(1), ..Stored::default() };
        let read = Observed::of(&view(1, stored.clone()));
        let absent = Observed::of(&View::Absent);
        let changed = Stored { image: image(2), ..stored.clone() };
        for (read, now, expect) in [
            (None, View::Absent, Locking::CreatePlaceholder),
            (Some(&absent), View::Absent, Locking::CreatePlaceholder),
            (Some(&read), View::Absent, Locking::Changed),
            (None, view(4, stored.clone()), Locking::LockAt(version(4))),
            (Some(&read), view(4, stored.clone()), Locking::LockAt(version(4))),
            (Some(&read), view(4, changed.clone()), Locking::Changed),
            (Some(&absent), view(4, stored.clone()), Locking::Changed),
            (Some(&read), view(4, stored.locked_by(Some(me))), Locking::Settle(version(4))),
            // A lock of the same attempt over other content belongs to another read: start again.
            (Some(&read), view(4, changed.locked_by(Some(me))), Locking::Changed),
            (Some(&read), view(4, stored.locked_by(Some(other))), Locking::Held(other)),
            (None, view(4, Stored::placeholder(me)), Locking::Settle(version(4))),
            (Some(&absent), view(4, Stored::placeholder(me)), Locking::Settle(version(4))),
            (Some(&absent), view(4, Stored::placeholder(other)), Locking::Held(other)),
            // An earlier attempt of the same transaction counts as another one, to be aborted
            // first.
            (Some(&read), view(4, stored.locked_by(Some(tid(3, 0)))), Locking::Held(tid(3, 0))),
        ] {
            assert_eq!(locking(&Rules::all(), me, read, &now), expect, "{read:?} {now:?}");
        }
    }
}
