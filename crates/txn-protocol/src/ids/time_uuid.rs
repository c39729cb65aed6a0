//! The version 1 UUID behind every id of the protocol.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

/// Ticks of 100 ns between the epochs of timeuuids and Unix. The epoch of timeuuids is the
/// Gregorian one (1582-10-15).
const UNIX_EPOCH_TICKS: u64 = 0x01B2_1DD2_1381_4000;

/// The largest clock sequence of 14 bits. RFC 9562 defines the clock sequence.
pub(super) const MAX_SEQUENCE: u16 = (1 << 14) - 1;

/// A moment, 14 bits of the owner's choice, and a random node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TimeUuid(Uuid);

/// The fields of a [`TimeUuid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Ticks of 100 ns since the Gregorian epoch.
    pub(super) ticks: u64,
    pub(super) sequence: u16,
    pub(super) node: [u8; 6],
}

/// The number of a process: its node's first bytes.
///
/// All ids of the process have the node.
///
/// Rarely two processes share a number. `Display` writes four hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessNumber(pub(super) [u8; 2]);

impl fmt::Display for ProcessNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.0;
        write!(f, "{a:02x}{b:02x}")
    }
}

impl Parts {
    pub(super) fn process(self) -> ProcessNumber {
        let [a, b, ..] = self.node;
        ProcessNumber([a, b])
    }
}

impl TimeUuid {
    /// The earliest UUID.
    pub(super) const EPOCH: Self = Self(Uuid::from_u128(0x00000000_0000_1000_8000_000000000000));

    pub(super) fn from_parts(Parts { ticks, sequence, node }: Parts) -> Self {
        Self(uuid::Builder::from_gregorian_timestamp(ticks, sequence, &node).into_uuid())
    }

    pub(super) fn parts(self) -> Parts {
        // The parser refuses UUIDs of other versions.
        let (low, middle, high, [sequence @ .., a, b, c, d, e, f]) = self.0.as_fields();
        let ticks = u64::from(high & 0x0fff) << 48 | u64::from(middle) << 32 | u64::from(low);
        let sequence = u16::from_be_bytes(*sequence) & MAX_SEQUENCE;
        Parts { ticks, sequence, node: [*a, *b, *c, *d, *e, *f] }
    }

    /// Time since the Unix epoch.
    pub(super) fn unix_time(self) -> Duration {
        unix_time_of(self.parts().ticks)
    }

    /// The text without hyphens.
    pub(super) fn compact(self) -> impl fmt::Display {
        self.0.simple()
    }
}

pub(super) fn ticks_of(unix: Duration) -> u64 {
    UNIX_EPOCH_TICKS + u64::try_from(unix.as_nanos() / 100).unwrap_or(u64::MAX / 4)
}

pub(super) fn unix_time_of(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_sub(UNIX_EPOCH_TICKS).saturating_mul(100))
}

/// Whole days since the Unix epoch. Negative before the epoch.
pub(super) fn unix_days_of(ticks: u64) -> i64 {
    const TICKS_PER_DAY: i128 = 24 * 60 * 60 * 10_000_000;
    let days = (i128::from(ticks) - i128::from(UNIX_EPOCH_TICKS)).div_euclid(TICKS_PER_DAY);
    i64::try_from(days).unwrap_or(i64::MAX)
}

impl fmt::Display for TimeUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An error: the text is not a version 1 UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseIdError(String);

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an id of this library (a version 1 UUID)", self.0)
    }
}

impl std::error::Error for ParseIdError {}

impl FromStr for TimeUuid {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        match Uuid::parse_str(text) {
            Ok(uuid) if uuid.get_version_num() == 1 => Ok(Self(uuid)),
            _ => Err(ParseIdError(text.chars().take(64).collect())),
        }
    }
}

/// Text forms of a wrapped [`TimeUuid`]: the UUID, with hyphens.
macro_rules! as_text {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::ids::ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("the text of a version 1 UUID")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}
pub(super) use as_text;
