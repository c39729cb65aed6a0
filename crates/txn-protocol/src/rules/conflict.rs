//! Wound-wait: whether a requester waits for the holder of a document.

use crate::ids::AttemptId;
use crate::record::State;
use crate::rule::{Rule, Rules};

/// The state of a holder, by its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// No record, in a partition that exists.
    Missing,
    /// The partition of its day was dropped.
    Gone,
    /// A record in this state.
    Record(State),
}

/// The transaction that wants the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A transaction that locks: compared by age.
    Locking(AttemptId),
    /// A transaction that locks, within the grace of the holder.
    ///
    /// The holder gets some time to finish by itself. A wound now would make the holder repeat its
    /// work, and a roll forward would do the work twice.
    WithinGrace(AttemptId),
    /// A requester that never wounds: a read-only transaction, or an apply.
    NonPreempting,
}

impl Requester {
    /// The transaction for the comparison of ages, if there is one.
    #[must_use]
    pub const fn tid(self) -> Option<AttemptId> {
        match self {
            Self::Locking(me) | Self::WithinGrace(me) => Some(me),
            Self::NonPreempting => None,
        }
    }
}

/// The decision about the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Wait: the holder is entitled to finish.
    Wait,
    /// Decide the holder's transaction now, by [`super::resolve::recovery`].
    Resolve,
}

/// Decides whether the requester waits for the holder.
///
/// `dead`: the record of the holder was unchanged or missing for one lease, on the observer's own
/// clock.
pub fn conflict(
    rules: &Rules,
    requester: Requester,
    holder: AttemptId,
    state: HolderState,
    dead: bool,
) -> Conflict {
    // A holder that is about to finish is not wounded within the grace.
    let in_grace = matches!(requester, Requester::WithinGrace(me) if me.age() != holder.age());
    match state {
        // A finished holder has lost its lock since, and another attempt may hold the document.
        HolderState::Missing
        | HolderState::Record(State::Pending | State::Committed | State::Finished)
            if in_grace && !dead =>
        {
            Conflict::Wait
        }
        // Already decided: each process that finds the lock resolves it.
        HolderState::Gone
        | HolderState::Record(State::Committed | State::Finished | State::Aborted) => {
            Conflict::Resolve
        }
        _ if dead => Conflict::Resolve,
        HolderState::Missing | HolderState::Record(State::Pending) => match requester.tid() {
            // Younger, or an earlier attempt of the requester itself, which cannot commit any more.
            Some(me) if holder.age() >= me.age() && rules.decides(Rule::WoundYounger) => {
                Conflict::Resolve
            }
            _ => Conflict::Wait,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tid;
    use super::*;

    #[test]
    fn every_row() {
        use Conflict::{Resolve, Wait};
        use HolderState::{Gone, Missing, Record};
        use State::{Aborted, Committed, Finished, Pending};
        let me = tid(5, 2);
        let (older, younger, mine) = (tid(4, 0), tid(6, 0), tid(5, 1));
        // The state; the decision for an older holder, a younger one and an own earlier attempt;
        // the decision for a dead one.
        for (state, older_does, younger_does, mine_does, dead_does) in [
            (Missing, Wait, Resolve, Resolve, Resolve),
            (Record(Pending), Wait, Resolve, Resolve, Resolve),
            (Record(Committed), Resolve, Resolve, Resolve, Resolve),
            (Record(Finished), Resolve, Resolve, Resolve, Resolve),
            (Record(Aborted), Resolve, Resolve, Resolve, Resolve),
            (Gone, Resolve, Resolve, Resolve, Resolve),
        ] {
            let asks =
                |holder, dead| conflict(&Rules::all(), Requester::Locking(me), holder, state, dead);
            assert_eq!(asks(older, false), older_does, "{state:?} older");
            assert_eq!(asks(younger, false), younger_does, "{state:?} younger");
            assert_eq!(asks(mine, false), mine_does, "{state:?} mine");
            for holder in [older, younger, mine] {
                assert_eq!(asks(holder, true), dead_does, "{state:?} dead");
                let patient =
                    conflict(&Rules::all(), Requester::NonPreempting, holder, state, false);
                assert_eq!(patient, older_does, "{state:?} patient waits as for an older one");
            }
            let courteous = Requester::WithinGrace(me);
            let asks = |holder, dead| conflict(&Rules::all(), courteous, holder, state, dead);
            let at_it = matches!(state, Missing | Record(Pending | Committed | Finished));
            for holder in [older, younger] {
                assert_eq!(asks(holder, false), if at_it { Wait } else { Resolve }, "{state:?}");
                assert_eq!(asks(holder, true), dead_does, "{state:?} courteous, dead");
            }
            assert_eq!(asks(mine, false), mine_does, "{state:?} mine, courteous");
        }
    }
}
