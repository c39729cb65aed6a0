//! Processes, their clients and their transactions.

use std::collections::BTreeSet;

use crate::random::Random;
use crate::store::{Micros, millis};

/// The action of a transaction on its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Increments each document: locks, a record, an apply.
    Write,
    /// Increments one document with one conditional write and no record.
    SingleWrite,
    /// Reads each document and validates the reads.
    ReadOnly,
    /// A read-only transaction that failed to validate and locks its documents.
    LockedRead,
}

/// A transaction that a client waits for.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The start by the clock of the process: the age for wound-wait.
    pub age: Micros,
    /// The start.
    pub started_at: Micros,
    /// The documents, in ascending order.
    pub documents: Vec<usize>,
    /// The client, if the client sends the next transaction after this one.
    pub client: Option<usize>,
    /// The action of the transaction.
    pub kind: Kind,
    /// When the transaction lost a document to another process.
    pub passed_over_since: Option<Micros>,
}

/// The arrival of transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Each client pauses this long after each answer. Then the client sends its next transaction.
    Closed {
        /// The pause in microseconds.
        think: Micros,
    },
    /// This many per second, independent of the answers.
    Poisson(f64),
}

/// One process of a scenario.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// The mean round trip.
    pub round_trip: Micros,
    /// The clients.
    pub clients: usize,
    /// The arrival of transactions.
    pub arrivals: Arrivals,
    /// The kind of a transaction.
    pub kind: Kind,
    /// The share of transactions of `kind`; the other transactions write.
    pub share: f64,
    /// Whether each transaction is its own batch.
    pub is_by_itself: bool,
    /// Whether the process runs a version without the board.
    pub is_plain: bool,
    /// The deviation of the process's clock from the true time.
    pub clock_error: i64,
    /// The smallest and the largest number of documents of a transaction.
    pub documents: (usize, usize),
    /// Documents of every transaction.
    pub fixed: Vec<usize>,
    /// The process uses the documents below this number, or all of them.
    pub range: Option<usize>,
}

impl ProcessSpec {
    /// Creates a process with round trips of this many milliseconds.
    ///
    /// Its clients write two or three documents without a pause.
    #[must_use]
    pub fn new(round_trip_ms: u64, clients: usize) -> Self {
        Self {
            round_trip: millis(round_trip_ms),
            clients,
            arrivals: Arrivals::Closed { think: 0 },
            kind: Kind::Write,
            share: 1.0,
            is_by_itself: false,
            is_plain: false,
            clock_error: 0,
            documents: (2, 3),
            fixed: Vec::new(),
            range: None,
        }
    }
}

/// The documents, and the choice of a transaction's documents.
#[derive(Clone, Debug, PartialEq)]
pub enum Documents {
    /// Uniformly chosen documents.
    Uniform {
        /// The number of documents.
        number: usize,
    },
    /// Two of the first ten documents, and further documents. The first ten are hot, and the
    /// further documents are of the rest.
    Wide {
        /// The number of documents, including the hot ones.
        number: usize,
        /// The number of cold documents of a transaction.
        cold: usize,
    },
    /// A shop. There are 50 events, 50 organisers, 8 shards of the outbox and 1,000 customers.
    Shop {
        /// Whether all customers want the same event.
        is_popular: bool,
    },
}

const EVENTS: usize = 50;
const ORGANISERS: usize = 50;
const SHARDS: usize = 8;
const CUSTOMERS: usize = 1_000;

/// The first document that is a shard of the shop's outbox.
pub const FIRST_SHARD: usize = EVENTS + ORGANISERS;

/// Half of a sale.
///
/// The second transaction of a client concerns the event and the customer of the first one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sale {
    is_second: bool,
    event: usize,
    customer: usize,
}

impl Documents {
    /// Returns the number of documents.
    #[must_use]
    pub fn number(&self) -> usize {
        match self {
            Self::Uniform { number } | Self::Wide { number, .. } => *number,
            Self::Shop { .. } => FIRST_SHARD + SHARDS + CUSTOMERS,
        }
    }

    /// Whether a document is a shard of the outbox.
    ///
    /// Processes handle the entries of the shard.
    #[must_use]
    pub fn is_shard(&self, document: usize) -> bool {
        matches!(self, Self::Shop { .. }) && (FIRST_SHARD..FIRST_SHARD + SHARDS).contains(&document)
    }

    /// Returns the documents of a client's next transaction.
    pub fn choose(&self, spec: &ProcessSpec, sale: &mut Sale, random: &mut Random) -> Vec<usize> {
        match self {
            Self::Uniform { number } => {
                let (least, most) = spec.documents;
                let count = least + random.index(most - least + 1);
                let end = spec.range.unwrap_or(*number).max(count);
                let mut chosen: BTreeSet<usize> = spec.fixed.iter().copied().collect();
                while chosen.len() < count {
                    chosen.insert(random.index(end));
                }
                chosen.into_iter().collect()
            }
            Self::Wide { number, cold } => {
                let mut chosen = BTreeSet::from([random.index(10), random.index(10)]);
                while chosen.len() < 2 + cold {
                    chosen.insert(10 + random.index(number - 10));
                }
                chosen.into_iter().collect()
            }
            Self::Shop { is_popular } => {
                if !sale.is_second {
                    sale.event = if *is_popular { 0 } else { random.index(EVENTS) };
                    sale.customer = random.index(CUSTOMERS);
                }
                let mut chosen = vec![sale.event, FIRST_SHARD + SHARDS + sale.customer];
                if sale.is_second {
                    chosen.push(EVENTS + sale.event);
                }
                chosen.push(FIRST_SHARD + random.index(SHARDS));
                chosen.sort_unstable();
                chosen
            }
        }
    }
}

impl Sale {
    /// Moves the client to the other half of the sale.
    pub fn commit(&mut self) {
        self.is_second = !self.is_second;
    }
}
