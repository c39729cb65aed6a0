//! Ids of attempts.

use std::time::Duration;

use super::day::Day;
use super::time_uuid::{MAX_SEQUENCE, Parts, ProcessNumber, TimeUuid, as_text};

/// The largest number of an attempt, which has 14 bits.
pub const MAX_ATTEMPT: u16 = MAX_SEQUENCE;

/// The id of one attempt, in its locks and of its record.
///
/// An attempt id is a version 1 UUID. The timestamp is the start of the *logical* transaction, kept
/// over all attempts: the age that wound-wait compares. The clock sequence is the number
/// of the attempt. The node begins with two bytes of the process. Four random bytes of the
/// transaction follow, so that copies of one process share no id.
///
/// Attempt ids are ordered by age: the older transaction is less. The order of the text differs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptId(TimeUuid);

/// The age of a logical transaction: less is older. Equal for all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age {
    ticks: u64,
    node: [u8; 6],
}

impl AttemptId {
    /// The first attempt of a transaction that started at `ticks`. The id has `own` random bits.
    pub(super) fn first(ticks: u64, process: [u8; 2], own: u32) -> Self {
        let ([a, b], [c, d, e, f]) = (process, own.to_be_bytes());
        Self(TimeUuid::from_parts(Parts { ticks, sequence: 0, node: [a, b, c, d, e, f] }))
    }

    pub(super) fn ticks(self) -> u64 {
        self.0.parts().ticks
    }

    /// The age of the logical transaction.
    #[must_use]
    pub fn age(self) -> Age {
        let Parts { ticks, node, .. } = self.0.parts();
        Age { ticks, node }
    }

    /// The number of the attempt, from 0.
    #[must_use]
    pub fn attempt(self) -> u16 {
        self.0.parts().sequence
    }

    /// The id of another attempt of the same logical transaction.
    #[must_use]
    pub fn with_attempt(self, attempt: u16) -> Self {
        Self(TimeUuid::from_parts(Parts { sequence: attempt, ..self.0.parts() }))
    }

    /// The process of the attempt.
    #[must_use]
    pub fn process(self) -> ProcessNumber {
        self.0.parts().process()
    }

    /// The start of the transaction, since the Unix epoch.
    #[must_use]
    pub fn unix_time(self) -> Duration {
        self.0.unix_time()
    }

    /// The UTC day, which names the partition of the transaction table.
    #[must_use]
    pub fn day(self) -> Day {
        Day::of_ticks(self.0.parts().ticks)
    }
}

impl Ord for AttemptId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.age(), self.attempt()).cmp(&(other.age(), other.attempt()))
    }
}

impl PartialOrd for AttemptId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

as_text!(AttemptId);
