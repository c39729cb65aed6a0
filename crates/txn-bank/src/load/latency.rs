//! Latencies as quantiles.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::error::{BankError, Result};

/// A distribution of durations, in microseconds, up to ten minutes.
pub(super) struct Latency(Histogram<u64>);

impl Latency {
    pub(super) fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, 600_000_000, 3);
        histogram.map(Self).map_err(|e| BankError::InvalidLoad(e.to_string()))
    }

    pub(super) fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// The minimum, the maximum and these quantiles, in milliseconds. Empty without records.
    pub(super) fn millis(&self, quantiles: &[(&'static str, f64)]) -> BTreeMap<&'static str, f64> {
        if self.0.is_empty() {
            return BTreeMap::new();
        }
        let ms = |micros: u64| micros as f64 / 1_000.0;
        let of = |(name, quantile): &(&'static str, f64)| {
            (*name, ms(self.0.value_at_quantile(*quantile)))
        };
        let ends = [("min", ms(self.0.min())), ("max", ms(self.0.max()))];
        quantiles.iter().map(of).chain(ends).collect()
    }
}
