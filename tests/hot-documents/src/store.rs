//! The store: documents, records and the board, with conditional writes.

use std::collections::BTreeMap;

use txn_protocol::board::{MOST_SLOTS, Slot};
use txn_store::Version;

/// Microseconds of simulated time.
pub type Micros = u64;

/// Returns a number of milliseconds.
#[must_use]
pub const fn millis(number: u64) -> Micros {
    number * 1_000
}

/// The id of a batch's attempt: age, process and number.
///
/// A smaller id is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// When the oldest transaction of the batch started.
    pub age: Micros,
    /// The process.
    pub process: usize,
    /// The number of the batch.
    pub number: u64,
}

/// A document: a counter that each transaction increments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The version, which grows with each write.
    pub version: u64,
    /// The attempt that holds the lock.
    pub lock: Option<Attempt>,
    /// The counter.
    pub value: i64,
}

/// The record of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Committed, with the new values.
    Committed(Vec<(usize, i64)>),
    /// Aborted by another process.
    Aborted,
}

/// One operation of a request.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Read a document.
    Read(usize),
    /// Write a document over a version.
    Write {
        /// The document.
        document: usize,
        /// The version that is replaced.
        over: u64,
        /// The lock that the document then has.
        lock: Option<Attempt>,
        /// The value that the document then has.
        value: i64,
    },
    /// Create a record, unless there is one.
    Record(Attempt, Record),
    /// Read the first slots of the board.
    Look(usize),
    /// Write a slot of the board over a version.
    WriteBoard(usize, Slot, Option<Version>),
}

/// The answer to an operation.
#[derive(Clone, Debug)]
pub enum Answer {
    /// No answer.
    None,
    /// The document that was read.
    Document(Document),
    /// The version after a write.
    Written(u64),
    /// Another version than the expected one.
    Conflict,
    /// The record was created.
    Recorded,
    /// Another record exists.
    Exists(Record),
    /// The board that was read.
    Board(Slots),
    /// The version of the slot after a write.
    BoardWritten(Version),
}

/// The slots of the board with their versions.
pub type Slots = Vec<(Slot, Option<Version>)>;

/// The behaviour of the board.
#[derive(Clone, Debug, Default)]
pub struct BoardFaults {
    /// The delay until a read shows a write.
    pub late: Micros,
    /// The interval in which the board fails.
    pub unreachable: Option<(Micros, Micros)>,
}

/// The store of all processes.
#[derive(Debug)]
pub struct Store {
    /// The documents.
    pub documents: Vec<Document>,
    records: BTreeMap<Attempt, Record>,
    board: Slots,
    board_writes: u64,
    history: Vec<(Micros, Slots)>,
    faults: BoardFaults,
}

impl Store {
    /// Creates a store of this many documents.
    #[must_use]
    pub fn new(documents: usize, faults: BoardFaults) -> Self {
        let document = Document { version: 1, ..Document::default() };
        Self {
            documents: vec![document; documents],
            records: BTreeMap::new(),
            board: vec![(Slot::default(), None); MOST_SLOTS],
            board_writes: 0,
            history: Vec::new(),
            faults,
        }
    }

    /// Executes an operation.
    pub fn execute(&mut self, now: Micros, operation: Operation) -> Answer {
        match operation {
            Operation::Read(document) => Answer::Document(self.documents[document]),
            Operation::Write { document, over, lock, value } => {
                let document = &mut self.documents[document];
                if document.version != over {
                    return Answer::Conflict;
                }
                *document = Document { version: over + 1, lock, value };
                Answer::Written(over + 1)
            }
            Operation::Record(attempt, record) => match self.records.get(&attempt) {
                Some(exists) => Answer::Exists(exists.clone()),
                None => {
                    self.records.insert(attempt, record);
                    Answer::Recorded
                }
            },
            Operation::Look(_) | Operation::WriteBoard(..) if self.is_unreachable(now) => {
                Answer::None
            }
            Operation::Look(slots) => self.look(now, slots),
            Operation::WriteBoard(number, slot, over) => {
                if over != self.board[number].1 {
                    return Answer::Conflict;
                }
                Answer::BoardWritten(self.replace_slot(now, number, slot))
            }
        }
    }

    /// Empties each slot of the board.
    pub fn wipe_board(&mut self, now: Micros) {
        for number in 0..self.board.len() {
            if self.board[number].0.wish.is_some() {
                self.replace_slot(now, number, Slot::default());
            }
        }
    }

    /// Returns a process that holds a lock, if there is one.
    #[must_use]
    pub fn holder(&self) -> Option<usize> {
        self.documents.iter().find_map(|document| document.lock).map(|attempt| attempt.process)
    }

    /// Returns the sum of all values, including unapplied commits.
    #[must_use]
    pub fn total(&self) -> i64 {
        let value = |(index, document): (usize, &Document)| {
            let record = document.lock.and_then(|attempt| self.records.get(&attempt));
            match record {
                Some(Record::Committed(values)) => values
                    .iter()
                    .find(|(written, _)| *written == index)
                    .map_or(document.value, |(_, value)| *value),
                _ => document.value,
            }
        };
        self.documents.iter().enumerate().map(value).sum()
    }

    fn is_unreachable(&self, now: Micros) -> bool {
        self.faults.unreachable.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    fn look(&self, now: Micros, slots: usize) -> Answer {
        if self.faults.late == 0 {
            return Answer::Board(self.board[..slots].to_vec());
        }
        let until = now.saturating_sub(self.faults.late);
        match self.history.iter().rfind(|(at, _)| *at <= until) {
            Some((_, board)) => Answer::Board(board[..slots].to_vec()),
            None => Answer::Board(Vec::new()),
        }
    }

    fn replace_slot(&mut self, now: Micros, number: usize, slot: Slot) -> Version {
        self.board_writes += 1;
        let version = Version { incarnation: 0, term: 1, seq_no: self.board_writes };
        self.board[number] = (slot, Some(version));
        if self.faults.late > 0 {
            self.history.push((now, self.board.clone()));
            let late = self.faults.late;
            if let Some(first) = self.history.iter().rposition(|(at, _)| *at + 2 * late < now) {
                self.history.drain(..first);
            }
        }
        version
    }
}
