//! Parallel commit: the record goes out as `staged`, in the same bulk as the locks. The transaction is committed
//! once the record and every lock are acknowledged, though the record does not say so yet.
//!
//! Only for updates and deletes of documents that exist, with nothing to validate: each lock is conditioned on a
//! version that the record names, so it lands once or never, and a fence can shut it out.

use super::conflict::HolderState;
use super::resolve::{Reading, Recovery, reading, recovery};
use super::validate::Observed;
use crate::document::View;
use crate::ids::AttemptId;
use crate::machines::attempt::Change;
use crate::record::{Participant, State};
use crate::rule::{Rule, Rules};
use txn_store::Version;

/// Whether a transaction may be staged, by what it does: each of its locks has to be conditioned on a version that its
/// record can name beforehand.
///
/// `writes`: what it does to each document that it writes, and what it read of that, if it did. `validates`: it read something
/// else, which has to be validated once every lock stands.
pub fn may_stage<'a>(
    rules: &Rules,
    writes: impl IntoIterator<Item = (Change, Option<&'a Observed>)>,
    validates: bool,
) -> bool {
    if validates && rules.decides(Rule::StageNoReads) {
        return false;
    }
    let mut writes = writes.into_iter().peekable();
    writes.peek().is_some()
        && writes.all(|(change, read)| {
            let replaces = matches!(change, Change::Put | Change::Delete);
            let at_rest = read.is_some_and(|read| {
                read.version.is_some() && read.image.is_some() && read.holder.is_none()
            });
            replaces && at_rest
        })
}

/// What came back for one item of the owner's bulk: the record, a lock, or a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    Awaited,
    /// The write is acknowledged; the dry run says that the content fits.
    Acknowledged,
    /// A refusal, or no answer any more.
    Failed,
}

/// What the owner does about its bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owning {
    /// Wait for the rest.
    Await,
    /// It is committed: acknowledge it to the caller, then mark the record.
    Acknowledge,
    /// Decide the own record, by [`own_record`], before anything is waited for, told or tried again.
    DecideRecord,
}

/// `answers`: of the record, every lock and every dry run. A dry run counts like a lock: one that fails leaves
/// every lock in place, so that nothing is missing for those who recover, and they may commit what
/// could never be applied.
pub fn owning(answers: impl IntoIterator<Item = Answer>) -> Owning {
    let mut all = Owning::Acknowledge;
    for answer in answers {
        match answer {
            Answer::Failed => return Owning::DecideRecord,
            Answer::Awaited => all = Owning::Await,
            Answer::Acknowledged => {}
        }
    }
    all
}

/// What the owner does to its own record, having acknowledged nothing. It needs no fence to abort: only it could
/// have acknowledged, and it never will. Whoever recovers may be faster, and then it is committed.
pub fn own_record(rules: &Rules, state: HolderState) -> Recovery {
    match recovery(rules, state, false) {
        Recovery::DecideStaged => Recovery::SwapToAborted,
        other => other,
    }
}

/// What is known of one participant by acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// Nothing.
    Open,
    /// Its lock stood.
    Locked,
    /// Its lock cannot land any more.
    Fenced,
}

/// The next step about one participant of a staged transaction that is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// Nothing has to be written.
    Known(Probed),
    /// Its lock seems to stand: an acknowledged touch on this version proves it.
    TouchLock(Version),
    /// Its lock is missing: an acknowledged touch on this version, keeping whatever lock the document carries,
    /// shuts it out for good. Also where the document is past the expected version, for what a read shows may
    /// vanish.
    Fence(Version),
    /// The document is missing, and an acknowledged proof of that shuts the lock out.
    ProveAbsence,
    /// A placeholder stands there, whose version makes it a lock, so that it must not be touched: its holder is
    /// decided first, whatever its age.
    Decide(AttemptId),
    /// The collection was dropped and made again. The lock may have been acknowledged in the
    /// dropped collection, so a new document is no fence.
    Elsewhere,
}

/// One participant of the staged transaction `tid`, whose lock is conditioned on the version `expected`. Fences never wait: two
/// transactions whose locks cross would wait for each other for ever.
///
/// `now`: as its primary shows it after the staged record was read. `acknowledged`: what stands
/// there is the placeholder of a transaction that was told so, at this very version. That is a
/// fence already: an acknowledged write does not vanish, and it has taken the place of what the
/// lock is conditioned on. `elsewhere`: the collection was made again after the record was written.
pub fn probing(
    rules: &Rules,
    tid: AttemptId,
    expected: Option<Version>,
    now: &View,
    acknowledged: bool,
    elsewhere: bool,
) -> Probing {
    let lacks = |rule| !rules.decides(rule);
    match now {
        _ if elsewhere && now.holder() != Some(tid) && !lacks(Rule::SameCollection) => {
            Probing::Elsewhere
        }
        View::Absent if lacks(Rule::FenceBeforeAbort) || lacks(Rule::FencePastVersions) => {
            Probing::Known(Probed::Fenced)
        }
        View::Absent => Probing::ProveAbsence,
        View::Present { version, stored, .. } => match stored.lock {
            Some(holder) if holder == tid => match lacks(Rule::TouchStagedLocks) {
                true => Probing::Known(Probed::Locked),
                false => Probing::TouchLock(*version),
            },
            Some(holder) if stored.absent && rules.decides(Rule::FenceNoPlaceholder) => {
                match acknowledged {
                    true => Probing::Known(Probed::Fenced),
                    false => Probing::Decide(holder),
                }
            }
            _ if lacks(Rule::FenceBeforeAbort) => Probing::Known(Probed::Fenced),
            _ if expected != Some(*version) && lacks(Rule::FencePastVersions) => {
                Probing::Known(Probed::Fenced)
            }
            _ => Probing::Fence(*version),
        },
    }
}

/// What is to be written about a staged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: go on with [`probing`].
    GoOn,
    /// Swap it from `staged`, at the version that was read before the first probe, to `committed`.
    Commit,
    /// Swap it from `staged`, at that version, to `aborted`.
    Abort,
}

/// Every lock touched: committed. One fenced: it never will be.
pub fn verdict(participants: impl IntoIterator<Item = Probed>) -> Verdict {
    let mut all = Verdict::Commit;
    for participant in participants {
        match participant {
            Probed::Fenced => return Verdict::Abort,
            Probed::Open => all = Verdict::GoOn,
            Probed::Locked => {}
        }
    }
    all
}

/// What a reader answers who found the record staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagedReading {
    /// This; never [`Reading::Staged`].
    Answer(Reading),
    /// Wait a moment for the owner's mark; if it does not come, recover, and answer by the outcome.
    AwaitMark,
}

/// `all_locked`: every participant carried its lock, each looked at after the record was read. `again`: the record,
/// read once more after that; only then a missing lock says that nothing was acknowledged yet, for the
/// apply takes locks off, too. `written` as in [`reading`].
pub fn staged_reading(
    rules: &Rules,
    all_locked: bool,
    again: HolderState,
    written: bool,
) -> StagedReading {
    match again {
        HolderState::Record(State::Staged)
            if all_locked && !rules.decides(Rule::StagedDecidesNothing) =>
        {
            StagedReading::Answer(reading(rules, HolderState::Record(State::Committed), written))
        }
        HolderState::Record(State::Staged) if all_locked => StagedReading::AwaitMark,
        HolderState::Record(State::Staged) => StagedReading::Answer(Reading::CommittedImage),
        decided => StagedReading::Answer(reading(rules, decided, written)),
    }
}

/// Whether the lock of a participant stands.
pub fn is_locked(rules: &Rules, tid: AttemptId, participant: &Participant, now: &View) -> bool {
    match now {
        View::Present { version, stored, .. } => {
            stored.lock == Some(tid)
                && super::apply::is_participants_lock(rules, participant, *version, stored)
        }
        View::Absent => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{commit, image, tid, version, view};
    use super::*;
    use crate::document::Stored;
    use crate::record::Op;

    #[test]
    fn only_writes_of_what_was_read_at_rest_are_staged() {
        let stored = Stored { tid: Some(commit(1)), image: image(1), ..Stored::default() };
        let at_rest = Observed::of(&view(8, stored.clone()));
        let locked = Observed::of(&view(8, stored.locked_by(Some(tid(2, 0)))));
        let of_a_record = Observed { version: None, ..at_rest.clone() };
        let absent = Observed::of(&View::Absent);
        let (all, put) = (Rules::all(), Change::Put);
        for (writes, validates, expect) in [
            (vec![(put, Some(&at_rest)), (Change::Delete, Some(&at_rest))], false, true),
            (vec![(put, Some(&at_rest))], true, false),
            (vec![], false, false),
            (vec![(put, Some(&at_rest)), (put, None)], false, false),
            (vec![(put, Some(&locked))], false, false),
            (vec![(put, Some(&of_a_record))], false, false),
            (vec![(put, Some(&absent))], false, false),
            (vec![(Change::Insert, Some(&at_rest))], false, false),
            (vec![(Change::Withdrawn, Some(&at_rest))], false, false),
            (vec![(Change::Read, Some(&at_rest))], false, false),
        ] {
            assert_eq!(may_stage(&all, writes.clone(), validates), expect, "{writes:?}");
        }
    }

    #[test]
    fn every_row_of_the_owner() {
        use Answer::{Acknowledged, Awaited, Failed};
        for (answers, expect) in [
            (vec![Acknowledged, Acknowledged, Acknowledged], Owning::Acknowledge),
            (vec![Acknowledged, Awaited, Acknowledged], Owning::Await),
            (vec![Awaited, Failed], Owning::DecideRecord),
            (vec![Failed, Awaited], Owning::DecideRecord),
            (vec![Acknowledged, Acknowledged, Failed], Owning::DecideRecord),
        ] {
            assert_eq!(owning(answers.clone()), expect, "{answers:?}");
        }
    }

    #[test]
    fn every_row_of_the_owners_record() {
        use HolderState::{Gone, Missing, Record};
        use State::{Aborted, Committed, Finished, Pending, Staged};
        for (state, does) in [
            (Missing, Recovery::CreateAborted),
            (Gone, Recovery::Void),
            (Record(Pending), Recovery::SwapToAborted),
            (Record(Staged), Recovery::SwapToAborted),
            (Record(Aborted), Recovery::TouchAborted),
            (Record(Committed), Recovery::RollForward),
            (Record(Finished), Recovery::ApplyOrVoid),
        ] {
            assert_eq!(own_record(&Rules::all(), state), does, "{state:?}");
        }
    }

    #[test]
    fn every_row_of_a_probe() {
        let (me, other) = (tid(3, 0), tid(4, 0));
        let stored = Stored { tid: Some(commit(1)), image: image(1), ..Stored::default() };
        let v = version(8);
        for (now, expect) in [
            (view(8, stored.locked_by(Some(me))), Probing::TouchLock(v)),
            (view(8, stored.clone()), Probing::Fence(v)),
            (view(8, stored.locked_by(Some(other))), Probing::Fence(v)),
            // Another attempt of the same transaction is somebody else.
            (view(8, stored.locked_by(Some(tid(3, 1)))), Probing::Fence(v)),
            (view(8, Stored::placeholder(other)), Probing::Decide(other)),
            (View::Absent, Probing::ProveAbsence),
        ] {
            let probe =
                |expected| probing(&Rules::all(), me, Some(version(expected)), &now, false, false);
            assert_eq!(probe(8), expect, "{now:?}");
            assert_eq!(probe(7), expect, "what is past its version is touched as well: {now:?}");
        }
        let placeholder = view(8, Stored::placeholder(other));
        let own = probing(&Rules::all(), me, Some(version(7)), &placeholder, true, false);
        assert_eq!(own, Probing::Known(Probed::Fenced), "acknowledged to who asks");
        for (now, expect) in [
            (view(8, stored.locked_by(Some(me))), Probing::TouchLock(v)),
            (view(8, stored), Probing::Elsewhere),
            (placeholder, Probing::Elsewhere),
            (View::Absent, Probing::Elsewhere),
        ] {
            let probe = probing(&Rules::all(), me, Some(version(8)), &now, false, true);
            assert_eq!(probe, expect, "its collection was made again: {now:?}");
        }
    }

    #[test]
    fn every_row_of_the_verdict() {
        use Probed::{Fenced, Locked, Open};
        for (participants, expect) in [
            (vec![Locked, Locked], Verdict::Commit),
            (vec![Locked, Open], Verdict::GoOn),
            (vec![Open, Fenced], Verdict::Abort),
            (vec![Fenced, Open], Verdict::Abort),
            (vec![Locked, Fenced], Verdict::Abort),
        ] {
            assert_eq!(verdict(participants.clone()), expect, "{participants:?}");
        }
    }

    #[test]
    fn every_row_of_a_reader() {
        use HolderState::{Gone, Missing, Record};
        use Reading::{CommittedImage, RecordImage};
        use StagedReading::{Answer, AwaitMark};
        use State::{Aborted, Committed, Finished, Pending, Staged};
        for (again, all_locked, one_missing) in [
            (Record(Staged), AwaitMark, Answer(CommittedImage)),
            (Record(Committed), Answer(RecordImage), Answer(RecordImage)),
            (Record(Finished), Answer(RecordImage), Answer(RecordImage)),
            (Record(Aborted), Answer(CommittedImage), Answer(CommittedImage)),
            (Record(Pending), Answer(CommittedImage), Answer(CommittedImage)),
            // A staged record that was never acknowledged vanished with its primary.
            (Missing, Answer(CommittedImage), Answer(CommittedImage)),
            (Gone, Answer(CommittedImage), Answer(CommittedImage)),
        ] {
            assert_eq!(
                staged_reading(&Rules::all(), true, again, true),
                all_locked,
                "{again:?}, all locked"
            );
            assert_eq!(
                staged_reading(&Rules::all(), false, again, true),
                one_missing,
                "{again:?}, one missing"
            );
        }
        let unwritten = staged_reading(&Rules::all(), true, Record(Committed), false);
        assert_eq!(unwritten, Answer(CommittedImage), "not a written member");
    }

    #[test]
    fn a_members_lock() {
        let (me, other) = (tid(3, 0), tid(4, 0));
        let participant = Participant {
            collection: "c".into(),
            id: "i".into(),
            routing: None,
            op: Op::Write,
            expected: Some(version(7)),
            placeholder: None,
            before: Some(commit(1)),
        };
        let stored = Stored { tid: Some(commit(1)), image: image(1), ..Stored::default() };
        let put_back = Stored { tid: Some(commit(5)), ..stored.locked_by(Some(me)) };
        assert!(is_locked(&Rules::all(), me, &participant, &view(8, stored.locked_by(Some(me)))));
        assert!(!is_locked(
            &Rules::all(),
            me,
            &participant,
            &view(8, stored.locked_by(Some(other)))
        ));
        assert!(
            !is_locked(&Rules::all(), me, &participant, &view(9, put_back)),
            "not over what was locked"
        );
        assert!(!is_locked(&Rules::all(), me, &participant, &view(7, stored)));
        assert!(!is_locked(&Rules::all(), me, &participant, &View::Absent));
    }
}
