//! Samples of the answered requests, for the plots of the console.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use hyper::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// The time that the samples cover.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

/// The maximum number of samples.
const MOST: usize = (WINDOW.as_secs() / INTERVAL.as_secs()) as usize;

/// The longest measured time in microseconds. A longer one counts as this one.
const LONGEST_US: u64 = 60_000_000;

/// The requests of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The end of the interval.
    pub(crate) at: Instant,
    /// The length of the interval.
    pub(crate) length: Duration,
    /// Answered requests.
    pub(crate) requests: u64,
    /// Requests that committed a transaction.
    pub(crate) commits: u64,
    /// Requests with the status 429, or 500 and above.
    pub(crate) failures: u64,
    /// The median and the 99th percentile of the answer time. `None` without requests.
    pub(crate) times: Option<(Duration, Duration)>,
}

impl Sample {
    /// The rate of a count per second.
    pub(crate) fn rate(&self, count: u64) -> f64 {
        // No count of one interval needs more than 53 bits.
        count as f64 / self.length.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The samples of the last minutes, in bounded memory.
pub(crate) struct Samples {
    running: Mutex<Running>,
    taken: Mutex<VecDeque<Sample>>,
}

/// The interval that runs.
struct Running {
    since: Instant,
    requests: u64,
    commits: u64,
    failures: u64,
    times: Histogram<u32>,
}

impl Samples {
    pub(crate) fn new() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST_US, 2).expect("the bounds are constant");
        let (requests, commits, failures) = (0, 0, 0);
        let running = Running { since: Instant::now(), requests, commits, failures, times };
        Self { running: Mutex::new(running), taken: Mutex::default() }
    }

    /// Notes an answered request.
    pub(crate) fn note(&self, time: Duration, status: StatusCode, commits: bool) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut running = self.running.lock();
        running.requests += 1;
        running.commits += u64::from(commits && status.is_success());
        let failed = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        running.failures += u64::from(failed);
        running.times.saturating_record(us);
    }

    /// Ends the running interval, unless another task has just ended it.
    pub(crate) fn take(&self, now: Instant) {
        let sample = {
            let mut running = self.running.lock();
            let length = now.saturating_duration_since(running.since);
            if length < INTERVAL / 2 {
                return;
            }
            let at = |quantile| Duration::from_micros(running.times.value_at_quantile(quantile));
            let times = (running.requests > 0).then(|| (at(0.5), at(0.99)));
            let Running { requests, commits, failures, .. } = *running;
            running.times.reset();
            (running.requests, running.commits, running.failures) = (0, 0, 0);
            running.since = now;
            Sample { at: now, length, requests, commits, failures, times }
        };
        let mut taken = self.taken.lock();
        if taken.len() >= MOST {
            taken.pop_front();
        }
        taken.push_back(sample);
    }

    /// The samples, oldest first.
    pub(crate) fn all(&self) -> Vec<Sample> {
        self.taken.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_has_the_requests_of_its_interval() {
        let samples = Samples::new();
        let begin = samples.running.lock().since;
        for ms in 1..=100 {
            samples.note(Duration::from_millis(ms), StatusCode::OK, ms <= 40);
        }
        samples.note(Duration::from_secs(90), StatusCode::INTERNAL_SERVER_ERROR, true);
        samples.take(begin + INTERVAL);
        samples.take(begin + INTERVAL * 2);
        let [first, second] = samples.all()[..] else { panic!("two samples") };
        assert_eq!((first.requests, first.commits, first.failures), (101, 40, 1));
        let (median, high) = first.times.expect("times");
        assert!((50..=52).contains(&median.as_millis()), "{median:?}");
        assert!((99..=101).contains(&high.as_millis()), "{high:?}");
        assert!((first.rate(first.commits) - 8.0).abs() < 1e-9);
        assert_eq!((second.requests, second.times), (0, None));
    }

    #[test]
    fn number_of_samples_is_bounded() {
        let samples = Samples::new();
        let begin = samples.running.lock().since;
        for n in 1..=2 * u32::try_from(MOST).expect("small") {
            samples.take(begin + INTERVAL * n);
            // A second listener of the same gateway.
            samples.take(begin + INTERVAL * n + INTERVAL / 4);
        }
        let all = samples.all();
        assert_eq!(all.len(), MOST);
        assert!(all.iter().all(|sample| sample.length == INTERVAL));
        assert!(all.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
