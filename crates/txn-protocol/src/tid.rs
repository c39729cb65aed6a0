//! Transaction ids: version 1 UUIDs (timeuuids), as in the wound-wait scheme of the RESTBase design.
//!
//! The timestamp is the start of the *logical* transaction and is kept over its attempts: it is the
//! age that wound-wait compares. The clock sequence is the attempt, so every attempt has an id of its own. The node is
//! random per process. The text order of these UUIDs is not their order in time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::clock::{Clock, Entropy};

/// Ticks of 100 ns between the Gregorian epoch of timeuuids (1582-10-15) and the Unix epoch.
const UNIX_EPOCH_TICKS: u64 = 0x01B2_1DD2_1381_4000;
const TICKS_PER_DAY: u64 = 24 * 60 * 60 * 10_000_000;

/// Attempts of one logical transaction are numbered by 14 bits.
pub const MAX_ATTEMPT: u16 = (1 << 14) - 1;

/// The id of one attempt of a transaction, or of a commit.
///
/// Ordered by age: the older transaction is less. Attempts of one transaction differ only in
/// [`Tid::attempt`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tid(Uuid);

/// The age of a logical transaction: less is older. Equal for all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age {
    ticks: u64,
    node: [u8; 6],
}

impl Tid {
    fn from_parts(ticks: u64, attempt: u16, node: [u8; 6]) -> Self {
        Self(uuid::Builder::from_gregorian_timestamp(ticks, attempt, &node).into_uuid())
    }

    fn parts(self) -> (u64, u16, [u8; 6]) {
        // No UUID of another version is let in.
        let (low, middle, high, [sequence @ .., a, b, c, d, e, f]) = self.0.as_fields();
        let ticks = u64::from(high & 0x0fff) << 48 | u64::from(middle) << 32 | u64::from(low);
        (ticks, u16::from_be_bytes(*sequence) & MAX_ATTEMPT, [*a, *b, *c, *d, *e, *f])
    }

    /// The age of the logical transaction.
    #[must_use]
    pub fn age(self) -> Age {
        let (ticks, _, node) = self.parts();
        Age { ticks, node }
    }

    /// The node whose process made it.
    #[must_use]
    pub fn node(self) -> [u8; 6] {
        self.parts().2
    }

    /// The attempt, from 0.
    #[must_use]
    pub fn attempt(self) -> u16 {
        self.parts().1
    }

    /// The id of another attempt of the same logical transaction.
    #[must_use]
    pub fn with_attempt(self, attempt: u16) -> Self {
        let (ticks, _, node) = self.parts();
        Self::from_parts(ticks, attempt, node)
    }

    /// When the transaction started (or committed), since the Unix epoch, by the clock of its coordinator.
    #[must_use]
    pub fn unix_time(self) -> Duration {
        let ticks = self.parts().0.saturating_sub(UNIX_EPOCH_TICKS);
        Duration::from_micros(ticks / 10)
    }

    /// The UTC day, which names the partition of the transaction table.
    #[must_use]
    pub fn day(self) -> Day {
        Day::of_ticks(self.parts().0)
    }

    /// The compact form, without hyphens, as kept in [`txn_store::fields::TRANSACTION_RECENT`].
    pub fn compact(self) -> impl fmt::Display {
        self.0.simple()
    }
}

impl Ord for Tid {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.age(), self.attempt()).cmp(&(other.age(), other.attempt()))
    }
}

impl PartialOrd for Tid {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is not a version 1 UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTidError(String);

impl fmt::Display for ParseTidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a transaction id (a version 1 UUID)", self.0)
    }
}

impl std::error::Error for ParseTidError {}

impl FromStr for Tid {
    type Err = ParseTidError;

    fn from_str(text: &str) -> Result<Self, ParseTidError> {
        match Uuid::parse_str(text) {
            Ok(uuid) if uuid.get_version_num() == 1 => Ok(Self(uuid)),
            _ => Err(ParseTidError(text.chars().take(64).collect())),
        }
    }
}

impl serde::Serialize for Tid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Tid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TidVisitor;

        impl serde::de::Visitor<'_> for TidVisitor {
            type Value = Tid;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tid")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Tid, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(TidVisitor)
    }
}

/// A UTC day: the unit in which the transaction table is partitioned and dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(time::Date);

impl Day {
    fn of_ticks(ticks: u64) -> Self {
        let unix_days = (i128::from(ticks) - i128::from(UNIX_EPOCH_TICKS))
            .div_euclid(i128::from(TICKS_PER_DAY));
        let julian = i128::from(time::OffsetDateTime::UNIX_EPOCH.to_julian_day()) + unix_days;
        let date = i32::try_from(julian).ok().and_then(|d| time::Date::from_julian_day(d).ok());
        Self(date.unwrap_or(time::Date::MAX))
    }

    /// The day of a moment, given as time since the Unix epoch.
    #[must_use]
    pub fn of_unix_time(unix: Duration) -> Self {
        Self::of_ticks(ticks_of(unix))
    }

    /// The day `days` later (or earlier, if negative), within the range of the calendar.
    #[must_use]
    pub fn plus(self, days: i64) -> Self {
        let shifted = self.0.checked_add(time::Duration::days(days));
        Self(shifted.unwrap_or(if days < 0 { time::Date::MIN } else { time::Date::MAX }))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.0.to_calendar_date();
        write!(f, "{year:04}.{:02}.{day:02}", u8::from(month))
    }
}

impl fmt::Debug for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next().and_then(|part| part.parse::<u16>().ok());
        let date = (|| {
            let (year, month, day) = (next()?, next()?, next()?);
            let month = time::Month::try_from(u8::try_from(month).ok()?).ok()?;
            time::Date::from_calendar_date(year.into(), month, u8::try_from(day).ok()?).ok()
        })();
        date.map(Self).ok_or_else(|| format!("{text:?} is not a day (YYYY.MM.DD)"))
    }
}

impl serde::Serialize for Day {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Day {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn ticks_of(unix: Duration) -> u64 {
    UNIX_EPOCH_TICKS + u64::try_from(unix.as_nanos() / 100).unwrap_or(u64::MAX / 4)
}

/// Hands out transaction ids; never one timestamp twice.
#[derive(Debug)]
pub struct TidSource {
    clock: Arc<dyn Clock>,
    node: [u8; 6],
    last: Mutex<u64>,
}

/// A tid that was read lies further in the future than the clocks may drift apart.
#[derive(Debug, PartialEq, Eq)]
pub struct TooFarAhead {
    /// By how much.
    pub by: Duration,
}

impl TidSource {
    /// Whether an id is one of these.
    #[must_use]
    pub fn is_own(&self, tid: Tid) -> bool {
        tid.node() == self.node
    }

    /// Ids of a node of its own.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, entropy: &dyn Entropy) -> Self {
        let [a, b, c, d, e, f, ..] = entropy.next_u64().to_be_bytes();
        // The multicast bit says that the node is random, not a hardware address (RFC 9562, 6.10).
        Self { clock, node: [a | 1, b, c, d, e, f], last: Mutex::new(0) }
    }

    fn ticks_after(&self, floor: u64) -> u64 {
        let mut last = self.last.lock();
        *last = ticks_of(self.clock.wall()).max(*last + 1).max(floor + 1);
        *last
    }

    /// The first attempt of a new logical transaction.
    pub fn start(&self) -> Tid {
        Tid::from_parts(self.ticks_after(0), 0, self.node)
    }

    /// A commit tid: now, and later than everything that was read or is overwritten.
    pub fn commit(&self, after: Option<Tid>, drift: Duration) -> Result<Tid, TooFarAhead> {
        let floor = after.map_or(0, |tid| tid.parts().0);
        let bound = ticks_of(self.clock.wall().saturating_add(drift));
        if floor > bound {
            return Err(TooFarAhead { by: Duration::from_micros((floor - bound) / 10) + drift });
        }
        Ok(Tid::from_parts(self.ticks_after(floor), 0, self.node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that stands still.
    #[derive(Debug)]
    struct Noon;

    #[async_trait::async_trait]
    impl Clock for Noon {
        fn wall(&self) -> Duration {
            Duration::from_secs(1_772_280_000)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        async fn sleep(&self, _: Duration) {}
    }

    impl Entropy for Noon {
        fn next_u64(&self) -> u64 {
            7
        }
    }

    fn source() -> TidSource {
        TidSource::new(Arc::new(Noon), &Noon)
    }

    #[test]
    fn tids_are_timeuuids_in_order_of_time_and_keep_their_age_over_attempts() {
        let source = source();
        let (first, second) = (source.start(), source.start());
        assert!(first < second);
        let retry = first.with_attempt(3);
        assert_eq!((retry.age(), retry.attempt()), (first.age(), 3));
        assert!(retry > first && retry < second);
        assert_eq!(first.to_string().parse(), Ok(first));
        assert_eq!(first.compact().to_string().parse(), Ok(first));
        assert_eq!(first.0.get_version_num(), 1);
        assert_eq!(first.parts().2[0] & 1, 1, "multicast bit");
        assert_eq!(first.with_attempt(MAX_ATTEMPT).attempt(), MAX_ATTEMPT);
        assert!("not a tid".parse::<Tid>().is_err());
        assert!("7d444840-9dc0-41d1-b245-5ffdce74fad2".parse::<Tid>().is_err(), "version 4");
    }

    #[test]
    fn a_commit_is_later_than_what_it_overwrites_unless_that_is_too_far_ahead() {
        let source = source();
        let drift = Duration::from_secs(60);
        let ahead = Tid::from_parts(ticks_of(source.clock.wall() + drift / 2), 0, [1; 6]);
        let commit = source.commit(Some(ahead), drift).expect("within the drift");
        assert!(commit > ahead);
        assert!(source.start() > commit, "the clock of the process moved on with it");
        let far = Tid::from_parts(ticks_of(source.clock.wall() + drift * 10), 0, [1; 6]);
        assert!(source.commit(Some(far), drift).expect_err("too far").by > drift);
    }

    #[test]
    fn days() {
        let day: Day = "2026.02.28".parse().expect("a day");
        assert_eq!(day.plus(1).to_string(), "2026.03.01");
        assert_eq!(day.plus(-28).to_string(), "2026.01.31");
        let midnight = Duration::from_secs(1_772_236_800);
        assert_eq!(Day::of_unix_time(midnight), day);
        assert_eq!(Day::of_unix_time(midnight - Duration::from_nanos(100)), day.plus(-1));
        for text in ["2026.2", "2026.13.01", "x", "2026.02.30"] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }
}
