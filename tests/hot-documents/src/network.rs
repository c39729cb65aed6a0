//! Requests, their latency and the capacity of the server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random::Random;
use crate::store::{Answer, Micros, Operation};

/// The purpose of a request. The process continues there when the answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reads of a batch before its locks.
    ReadForBatch(u64),
    /// The locks of a batch.
    Lock(u64),
    /// The record of a batch.
    Record(u64),
    /// Applies and releases.
    Apply,
    /// Aborts the holders that a batch waits for.
    Wound(u64),
    /// A read of the board.
    Look,
    /// Reads into the cache.
    ReadAhead,
    /// A write of the board.
    WriteBoard,
    /// The reads of a read-only transaction.
    Validate(u64),
}

/// A request that a process sends.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The purpose of the request.
    pub purpose: Purpose,
    /// The operations, each executed independently, in any order.
    pub operations: Vec<Operation>,
}

/// A request under way.
#[derive(Clone, Debug)]
pub struct Request {
    /// The sender.
    pub process: usize,
    /// The purpose of the request.
    pub purpose: Purpose,
    /// The operations.
    pub operations: Vec<Operation>,
    /// Their answers.
    pub answers: Vec<Answer>,
    /// Operations that have no answer yet.
    pub open: usize,
    /// When the request was sent.
    pub sent_at: Micros,
    /// Whether the sender took in the answer, or gave up.
    pub is_done: bool,
}

/// The costs of requests on a server. Requests wait for a free worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacity {
    /// The number of concurrent requests; `None` for an unlimited server.
    pub workers: Option<usize>,
    /// Microseconds per request.
    pub per_request: f64,
    /// Microseconds per written document. A read costs 0.3 of a write.
    pub per_document: f64,
}

impl Capacity {
    fn service(&self, operations: &[Operation]) -> Micros {
        let weight = |operation: &Operation| match operation {
            Operation::Read(_) | Operation::Look(_) => 0.3,
            Operation::Write { .. } | Operation::Record(..) | Operation::WriteBoard(..) => 1.0,
        };
        let documents: f64 = operations.iter().map(weight).sum();
        (self.per_request + self.per_document * documents) as Micros
    }
}

/// The workers of the server.
#[derive(Debug)]
pub struct Server {
    capacity: Capacity,
    free_at: BinaryHeap<Reverse<Micros>>,
}

impl Server {
    /// Creates an idle server.
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        let workers = capacity.workers.unwrap_or(0);
        Self { capacity, free_at: std::iter::repeat_n(Reverse(0), workers).collect() }
    }

    /// Returns when the server executes a request that arrives at `arrival`.
    ///
    /// The caller has to pass requests in the order of their arrival.
    pub fn execute_at(&mut self, arrival: Micros, operations: &[Operation]) -> Micros {
        let service = self.capacity.service(operations);
        let Some(Reverse(free_at)) = self.free_at.pop() else { return arrival + service };
        let done = arrival.max(free_at) + service;
        self.free_at.push(Reverse(done));
        done
    }
}

/// Returns the latency of one way: half a round trip, with variation.
///
/// The variation is 20 % more or less, and one request in a hundred takes up to five times as long.
pub fn one_way(random: &mut Random, round_trip: Micros) -> Micros {
    let mut factor = 0.8 + 0.4 * random.fraction();
    if random.chance(0.01) {
        factor *= 1.0 + 4.0 * random.fraction();
    }
    (round_trip as f64 / 2.0 * factor) as Micros
}
