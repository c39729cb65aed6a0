//! Wound-wait: R wants a document that H holds.

use crate::ids::AttemptId;
use crate::record::State;
use crate::rule::{Rule, Rules};

/// What the holder's record shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// No record, in a partition that exists.
    Missing,
    /// The partition of its day was dropped.
    Gone,
    /// A record in this state.
    Record(State),
}

/// Who wants the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A transaction that locks: compared by age.
    Locking(AttemptId),
    /// The same, while it has hardly waited yet: whoever is at it is given a moment to finish by itself, for its work would be
    /// done again if it were wounded now, and twice if it were helped.
    Courteous(AttemptId),
    /// One that holds nothing and wounds nobody: a read-only transaction, or an apply that waits its turn.
    Patient,
}

impl Requester {
    /// The transaction whose age counts, if there is one.
    #[must_use]
    pub const fn tid(self) -> Option<AttemptId> {
        match self {
            Self::Locking(me) | Self::Courteous(me) => Some(me),
            Self::Patient => None,
        }
    }
}

/// What to do about the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It is entitled to finish: wait.
    Wait,
    /// Its transaction is to be decided now, by [`super::resolve::recovery`].
    Resolve,
}

/// Wait for the holder or put it aside? `dead`: its lock and its record were unchanged for one lease
/// on the observer's own clock.
pub fn conflict(
    rules: &Rules,
    requester: Requester,
    holder: AttemptId,
    state: HolderState,
    dead: bool,
) -> Conflict {
    let is_anothers = matches!(requester, Requester::Courteous(me) if me.age() != holder.age());
    match state {
        // Of one that is finished the lock was seen before: it is gone by now, and somebody else may be at it.
        HolderState::Missing
        | HolderState::Record(State::Pending | State::Committed | State::Finished)
            if is_anothers && !dead =>
        {
            Conflict::Wait
        }
        // Decided already: whoever meets it helps.
        HolderState::Gone
        | HolderState::Record(State::Committed | State::Finished | State::Aborted) => {
            Conflict::Resolve
        }
        _ if dead => Conflict::Resolve,
        // About to finish: nobody wounds it.
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
        // state, then what to do with an older, a younger and one's own earlier attempt, then when dead
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
                let patient = conflict(&Rules::all(), Requester::Patient, holder, state, false);
                assert_eq!(patient, older_does, "{state:?} patient waits as for an older one");
            }
            let courteous = Requester::Courteous(me);
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
