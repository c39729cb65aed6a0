//! Metrics that no event reports: the application passes them in.

use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};
use txn_core::Load;

use crate::as_f64;
use crate::figures;
use crate::series::ByValue;

/// The levels of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxLevels {
    /// The number of waiting events.
    pub events: u64,
    /// The age of the oldest waiting event.
    pub lag: Duration,
    /// The number of queues that wait for a dead letter.
    pub blocked: usize,
    /// The number of dead letters.
    pub dead: usize,
}

#[derive(Debug)]
pub(crate) struct Systems {
    running: Gauge,
    waiting: Gauge,
    queued: Gauge,
    requests: Counter,
    operations: Counter,
    nodes_left_out: Gauge,
    nodes: Gauge,
    events: Gauge,
    lag: Gauge,
    blocked: Gauge,
    dead: Gauge,
    states: ByValue<Gauge>,
    requests_lag: Gauge,
}

impl Systems {
    pub(crate) fn new(domain: &str) -> Self {
        let level = |name: &'static str| gauge!(name, "domain" => domain.to_owned());
        let count = |name: &'static str| counter!(name, "domain" => domain.to_owned());
        let of_state = |state| gauge!(figures::REQUEST_STATES, "domain" => domain.to_owned(), "state" => state);
        Self {
            running: level(figures::RUNNING),
            waiting: level(figures::WAITING),
            queued: level(figures::QUEUED),
            requests: count(figures::REQUESTS),
            operations: count(figures::REQUEST_OPERATIONS),
            nodes_left_out: level(figures::NODES_LEFT_OUT),
            nodes: level(figures::NODES),
            events: level(figures::OUTBOX_EVENTS),
            lag: level(figures::OUTBOX_LAG_SECONDS),
            blocked: level(figures::OUTBOX_BLOCKED),
            dead: level(figures::DEAD_LETTERS),
            states: ByValue::new(figures::STATES, of_state),
            requests_lag: level(figures::REQUESTS_LAG_SECONDS),
        }
    }

    pub(crate) fn sample(&self, load: &Load) {
        self.running.set(as_f64(load.running));
        self.waiting.set(as_f64(load.waiting));
        self.queued.set(as_f64(load.queued));
        self.requests.absolute(load.requests);
        self.operations.absolute(load.operations);
    }

    pub(crate) fn nodes(&self, left_out: usize, all: usize) {
        self.nodes_left_out.set(as_f64(left_out));
        self.nodes.set(as_f64(all));
    }

    pub(crate) fn outbox(&self, levels: OutboxLevels) {
        let OutboxLevels { events, lag, blocked, dead } = levels;
        self.events.set(as_f64(usize::try_from(events).unwrap_or(usize::MAX)));
        self.lag.set(lag.as_secs_f64());
        self.blocked.set(as_f64(blocked));
        self.dead.set(as_f64(dead));
    }

    pub(crate) fn requests(&self, state: &str, count: usize) {
        self.states.of(state).set(as_f64(count));
    }

    pub(crate) fn requests_lag(&self, lag: Duration) {
        self.requests_lag.set(lag.as_secs_f64());
    }
}
