//! UTC days, the partitions of the transaction table.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::time_uuid::{ticks_of, unix_days_of};

/// A UTC day, the unit of partitions of the transaction table.
///
/// Partitions are dropped as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(time::Date);

impl Day {
    pub(super) fn of_ticks(ticks: u64) -> Self {
        let epoch = i64::from(time::OffsetDateTime::UNIX_EPOCH.to_julian_day());
        let julian = epoch.saturating_add(unix_days_of(ticks));
        let date = i32::try_from(julian).ok().and_then(|d| time::Date::from_julian_day(d).ok());
        Self(date.unwrap_or(time::Date::MAX))
    }

    /// The day of a moment, given as time since the Unix epoch.
    #[must_use]
    pub fn of_unix_time(unix: Duration) -> Self {
        Self::of_ticks(ticks_of(unix))
    }

    /// The day that is `days` later, or earlier if `days` is negative.
    ///
    /// The result stays within the range of the calendar.
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

#[cfg(test)]
mod tests {
    use super::*;

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
