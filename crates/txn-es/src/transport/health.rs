//! The state of a node in the rotation. No I/O, no own clock.

use std::time::{Duration, Instant};

/// The pause before the first probe of a node that refused. Each further failure doubles the pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two probes. A node that returns is used again within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The known state of one node.
#[derive(Debug)]
pub(crate) struct Health {
    /// When the node last answered anything.
    heard: Instant,
    /// Failures since the last answer to a request.
    ///
    /// A successful probe does not reset this count: a node that answers probes and no requests
    /// stays out for longer and longer.
    failures: u32,
    is_out: bool,
}

/// The reason why a node is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node took a request and gave no answer.
    ///
    /// The first probe follows at once: it distinguishes a slow answer, a dead connection and a
    /// dead node.
    Silent,
    /// The node is unreachable, or answers that it cannot serve.
    Unable,
}

impl Health {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard: now, failures: 0, is_out: false }
    }

    pub(crate) fn is_out(&self) -> bool {
        self.is_out
    }

    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }

    /// Notes an answer with any status: the node is alive.
    pub(crate) fn hear(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    /// Notes that the node served a request. Returns whether the node was left out until now.
    pub(crate) fn serve(&mut self) -> bool {
        self.failures = 0;
        std::mem::take(&mut self.is_out)
    }

    /// Notes that a probe succeeded. Returns whether the node was left out until now.
    pub(crate) fn probe_succeeded(&mut self) -> bool {
        std::mem::take(&mut self.is_out)
    }

    /// Leaves the node out, and returns the pause before the first probe.
    ///
    /// `None` if the node is out already and a probe is under way.
    pub(crate) fn leave_out(&mut self, fault: Fault) -> Option<Duration> {
        if self.is_out {
            return None;
        }
        self.is_out = true;
        self.failures = self.failures.saturating_add(1);
        Some(match (fault, self.failures) {
            (Fault::Silent, 1) => Duration::ZERO,
            _ => self.pause(),
        })
    }

    /// Notes a failed probe, and returns the pause before the next.
    ///
    /// `None` if the node has served a request in the meantime.
    pub(crate) fn probe_failed(&mut self) -> Option<Duration> {
        self.is_out.then(|| {
            let pause = self.pause();
            self.failures = self.failures.saturating_add(1);
            pause
        })
    }

    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
    }
}

/// The number of slow reads that may be sent a second time.
///
/// Without a bound, an overloaded cluster would get twice the load.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: u32,
}

impl Budget {
    const FULL: u32 = 100;
    const PRICE: u32 = 10;

    pub(crate) fn new() -> Self {
        Self { tokens: Self::FULL }
    }

    /// Notes an answered request. Ten answers pay for one repetition.
    pub(crate) fn earn(&mut self) {
        self.tokens = (self.tokens + 1).min(Self::FULL);
    }

    /// Takes one repetition, if any is left.
    pub(crate) fn spend(&mut self) -> bool {
        let left = self.tokens.checked_sub(Self::PRICE);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_until_the_node_serves() {
        let mut health = Health::new(Instant::now());
        assert_eq!(health.leave_out(Fault::Unable), Some(SECOND));
        assert!(health.is_out());
        assert_eq!(health.leave_out(Fault::Unable), None, "one probe at a time");
        let pauses: Vec<_> = (0..7).filter_map(|_| health.probe_failed()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs));
        assert!(health.serve() && !health.is_out());
        assert_eq!(health.leave_out(Fault::Unable), Some(SECOND));
    }

    #[test]
    fn silence_is_probed_at_once() {
        let mut health = Health::new(Instant::now());
        assert_eq!(health.leave_out(Fault::Silent), Some(Duration::ZERO));
        assert!(health.probe_succeeded() && !health.is_out());
        // Silent again, without a served request in between.
        assert_eq!(health.leave_out(Fault::Silent), Some(2 * SECOND));
        assert!(health.probe_succeeded() && !health.probe_succeeded());
        assert_eq!(health.leave_out(Fault::Silent), Some(4 * SECOND));
    }

    #[test]
    fn a_probe_ends_when_the_node_serves() {
        let mut health = Health::new(Instant::now());
        health.leave_out(Fault::Silent);
        assert!(health.serve());
        assert_eq!(health.probe_failed(), None);
        assert!(!health.probe_succeeded());
    }

    #[test]
    fn repetitions_are_bounded_by_answers() {
        let mut budget = Budget::new();
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 10);
        (0..25).for_each(|_| budget.earn());
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 2);
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 10);
    }
}
