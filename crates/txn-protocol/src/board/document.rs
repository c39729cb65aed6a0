//! The board document and its encoding.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::set::DocumentSet;

/// Most entries of a board.
pub const MOST_ENTRIES: usize = 256;

/// Most bytes of an encoded board: [`MOST_ENTRIES`] entries with bitmaps.
pub const MOST_BYTES: usize = 400_000;

/// The largest ticket, the largest integer that each JSON parser keeps. An entry with a larger one is damaged.
pub const LAST_TICKET: u64 = (1 << 53) - 1;

/// The longest round trip and the longest stride that an entry may name, in microseconds.
const LONGEST: u64 = 3_600_000_000;

/// A process on the board: a random number of each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Node {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// A virtual time in microseconds. Tickets order the wishes and are compared with no clock.
pub type Ticket = u64;

/// The wish of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The wish with the smallest ticket goes first.
    pub ticket: Ticket,
    /// By how much the ticket exceeds the virtual time at which the process took the ticket.
    pub stride: Ticket,
    /// Transactions that wait or run in the process.
    pub clients: u32,
    /// The smoothed round trip of the process.
    pub round_trip: Duration,
    /// The documents.
    pub set: DocumentSet,
}

/// The wishes of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    /// By process, at most [`MOST_ENTRIES`].
    pub entries: BTreeMap<Node, Entry>,
}

#[derive(Serialize, Deserialize)]
struct StoredEntry {
    ticket: u64,
    stride: u64,
    clients: u32,
    rtt: u64,
    set: DocumentSet,
}

#[derive(Deserialize)]
struct StoredBoard<'a> {
    #[serde(borrow)]
    wishes: BTreeMap<String, &'a RawValue>,
}

impl Board {
    /// Decodes a board. A damaged or oversized board is empty, and damaged entries are left out.
    #[must_use]
    pub fn decode(json: &[u8]) -> Self {
        if json.len() > MOST_BYTES {
            return Self::default();
        }
        let Ok(stored) = serde_json::from_slice::<StoredBoard<'_>>(json) else {
            return Self::default();
        };
        if stored.wishes.len() > MOST_ENTRIES {
            return Self::default();
        }
        let entry = |(node, entry): (String, &RawValue)| {
            let node = node.parse().ok()?;
            let stored = serde_json::from_str::<StoredEntry>(entry.get()).ok()?;
            let is_sound =
                stored.ticket <= LAST_TICKET && stored.stride <= LONGEST && stored.rtt <= LONGEST;
            let entry = Entry {
                ticket: stored.ticket,
                stride: stored.stride,
                clients: stored.clients,
                round_trip: Duration::from_micros(stored.rtt),
                set: stored.set,
            };
            is_sound.then_some((node, entry))
        };
        Self { entries: stored.wishes.into_iter().filter_map(entry).collect() }
    }

    /// Encodes a board. Above [`MOST_ENTRIES`] the entries with the largest tickets are left out.
    #[must_use]
    pub fn encode(&self) -> Value {
        let mut entries: Vec<(&Node, &Entry)> = self.entries.iter().collect();
        entries.sort_by_key(|(node, entry)| (entry.ticket, **node));
        entries.truncate(MOST_ENTRIES);
        let entry = |(node, entry): (&Node, &Entry)| {
            let set = serde_json::to_value(&entry.set).unwrap_or_default();
            let fields = serde_json::json!({
                "ticket": entry.ticket.min(LAST_TICKET),
                "stride": entry.stride.min(LONGEST),
                "clients": entry.clients,
                "rtt": micros(entry.round_trip).min(LONGEST),
                "set": set,
            });
            (node.to_string(), fields)
        };
        serde_json::json!({ "wishes": entries.into_iter().map(entry).collect::<serde_json::Map<_, _>>() })
    }
}

/// Whole microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
