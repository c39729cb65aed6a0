//! The memory of a process about the days of the transaction table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::Error;
use txn_protocol::ids::Day;

/// The days of the transaction table that this process knows.
#[derive(Debug, Default)]
pub(super) struct KnownDays {
    /// The days with a partition that has its alias.
    ready: Mutex<BTreeSet<Day>>,
    dropped_through: Mutex<Option<Day>>,
    /// The marks of lifted days, and since when this process knows each.
    lifts: Mutex<BTreeMap<Day, (String, Duration)>>,
    refused: Mutex<BTreeMap<Day, RefusedPartition>>,
}

/// A partition that the store refused to create.
///
/// This process does not retry before `until`.
#[derive(Debug)]
struct RefusedPartition {
    error: Error,
    pause: Duration,
    until: Duration,
}

/// The pause after the first refusal. Each further refusal doubles the pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl KnownDays {
    pub(super) fn is_ready(&self, day: Day) -> bool {
        self.ready.lock().contains(&day)
    }

    pub(super) fn note_ready(&self, day: Day) {
        self.ready.lock().insert(day);
    }

    pub(super) fn is_known_gone(&self, day: Day) -> bool {
        self.dropped_through.lock().is_some_and(|through| day <= through)
    }

    pub(super) fn note_dropped(&self, through: Day) {
        let mut dropped = self.dropped_through.lock();
        *dropped = (*dropped).max(Some(through));
        self.ready.lock().retain(|day| *day > through);
        self.lifts.lock().retain(|day, _| *day > through);
    }

    /// Since when this process knows the mark of a lifted day.
    ///
    /// The time is on the monotonic clock.
    pub(super) fn lift_known_since(&self, day: Day, mark: &str, now: Duration) -> Duration {
        let mut lifts = self.lifts.lock();
        let known = lifts.entry(day).or_default();
        if known.0 != mark {
            *known = (mark.to_owned(), now);
        }
        known.1
    }

    /// The error of the last refusal, while a retry is too early.
    pub(super) fn refusal(&self, day: Day, now: Duration) -> Option<Error> {
        let refused = self.refused.lock();
        let refused = refused.get(&day).filter(|refused| now < refused.until)?;
        let pause = (refused.until - now).as_secs() + 1;
        Some(refused.error.noting(&format!("this process tries again in {pause} s")))
    }

    /// Notes whether the store created a partition.
    pub(super) fn note_made(&self, day: Day, refused_with: Option<&Error>, now: Duration) {
        let mut refused = self.refused.lock();
        let last = refused.remove(&day);
        if let Some(error) = refused_with {
            let pause = last.map_or(FIRST_PAUSE, |last| (2 * last.pause).min(LONGEST_PAUSE));
            let error = error.again();
            refused.insert(day, RefusedPartition { error, pause, until: now + pause });
        }
    }

    pub(super) fn forget_ready(&self, day: Day) {
        self.ready.lock().remove(&day);
    }
}
