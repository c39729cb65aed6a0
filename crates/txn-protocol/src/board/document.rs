//! The documents of the board and their encoding.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::set::DocumentSet;

/// The maximum number of slots, each a document. Further processes have no wish.
pub const MOST_SLOTS: usize = 64;

/// The maximum size of an encoded slot in bytes. An entry with a bitmap has 1,500 bytes.
pub const MOST_BYTES: usize = 4_096;

/// The largest ticket, the largest integer that each JSON parser keeps. An entry with a larger one
/// is damaged.
pub const LAST_TICKET: u64 = (1 << 53) - 1;

/// The longest round trip and stride of an entry, in microseconds.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The wish with the smallest ticket goes first.
    pub ticket: Ticket,
    /// The step to this ticket before the spacing. The step begins at the last ticket, or at the
    /// virtual time.
    pub stride: Ticket,
    /// Transactions that wait or run in the process.
    pub clients: u32,
    /// The smoothed round trip of the process.
    pub round_trip: Duration,
    /// The documents that the process wants.
    pub set: DocumentSet,
}

/// A document of the board: the wish of at most one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The process and its wish.
    pub wish: Option<(Node, Entry)>,
}

#[derive(Serialize, Deserialize)]
struct StoredSlot {
    node: String,
    ticket: u64,
    stride: u64,
    clients: u32,
    rtt: u64,
    set: DocumentSet,
}

impl Slot {
    /// Decodes a slot. A damaged or oversized slot is empty; unknown fields are ignored.
    #[must_use]
    pub fn decode(json: &[u8]) -> Self {
        let stored = if json.len() > MOST_BYTES { None } else { serde_json::from_slice(json).ok() };
        Self { wish: stored.and_then(sound) }
    }

    /// Encodes a slot. An empty slot is an empty object.
    #[must_use]
    pub fn encode(&self) -> Value {
        let Some((node, entry)) = &self.wish else { return Value::Object(serde_json::Map::new()) };
        let stored = StoredSlot {
            node: node.to_string(),
            ticket: entry.ticket.min(LAST_TICKET),
            stride: entry.stride.min(LONGEST),
            clients: entry.clients,
            rtt: micros(entry.round_trip).min(LONGEST),
            set: entry.set.clone(),
        };
        serde_json::to_value(stored).unwrap_or_default()
    }
}

fn sound(stored: StoredSlot) -> Option<(Node, Entry)> {
    let is_sound =
        stored.ticket <= LAST_TICKET && stored.stride <= LONGEST && stored.rtt <= LONGEST;
    let entry = Entry {
        ticket: stored.ticket,
        stride: stored.stride,
        clients: stored.clients,
        round_trip: Duration::from_micros(stored.rtt),
        set: stored.set,
    };
    let node = stored.node.parse().ok()?;
    is_sound.then_some((node, entry))
}

/// The duration in whole microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
