//! Counts of the requests that have not ended, for operators.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::{Entry, State};

/// Counts of requests that are open or quarantined. No snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenCounts {
    /// The number of requests in each open state, and of quarantined ones. A state without requests
    /// has 0.
    pub states: BTreeMap<State, usize>,
    /// The moment since which the oldest undecided request waits, in milliseconds since 1970.
    ///
    /// A request waits from its submission, or from the moment of its `not_before`.
    pub oldest_ms: Option<u64>,
}

impl OpenCounts {
    /// The states that are counted.
    pub(crate) fn states() -> impl Iterator<Item = State> + Clone {
        State::OPEN.into_iter().chain([State::Quarantined])
    }

    pub(crate) fn of(entries: &[Entry], now_ms: u64) -> Self {
        let mut states: BTreeMap<State, usize> = Self::states().map(|state| (state, 0)).collect();
        for entry in entries {
            *states.entry(entry.state).or_default() += 1;
        }
        let waits = |entry: &&Entry| matches!(entry.state, State::Created | State::Pending);
        let since = |entry: &Entry| entry.times.created_ms.max(entry.earliest_ms());
        let due = entries.iter().filter(waits).map(since).filter(|since| *since <= now_ms);
        Self { states, oldest_ms: due.min() }
    }

    /// The number of requests in a state.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.states.get(&state).copied().unwrap_or(0)
    }

    /// The time for which the oldest undecided request waits, in milliseconds, or 0.
    #[must_use]
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        self.oldest_ms.map_or(0, |oldest| now_ms.saturating_sub(oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::request::Request;

    fn entry(id: &str, state: State, created_ms: u64, not_before_ms: Option<u64>) -> Entry {
        let request = Request { not_before_ms, ..Request::default() };
        let mut entry = Entry::new(id, request, created_ms);
        entry.state = state;
        entry
    }

    #[test]
    fn oldest_due_request_without_a_decision_counts() {
        let mut entries = vec![
            entry("committed", State::Committed, 100, None),
            entry("quarantined", State::Quarantined, 200, None),
            entry("scheduled", State::Created, 250, Some(9_000)),
        ];
        let counts = OpenCounts::of(&entries, 5_000);
        assert_eq!((counts.oldest_ms, counts.lag_ms(5_000)), (None, 0));
        entries.push(entry("pending", State::Pending, 1_000, None));
        entries.push(entry("due", State::Created, 300, Some(4_000)));
        let counts = OpenCounts::of(&entries, 5_000);
        assert_eq!((counts.oldest_ms, counts.lag_ms(5_000)), (Some(1_000), 4_000));
        assert_eq!(OpenCounts::of(&entries[4..], 5_000).lag_ms(5_000), 1_000);
        let numbers: Vec<usize> = OpenCounts::states().map(|state| counts.count(state)).collect();
        // Created, pending, committed, terminating and quarantined.
        assert_eq!(numbers, [2, 1, 1, 0, 1]);
    }
}
