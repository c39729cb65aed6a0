//! Medians and percentiles.

use std::time::Duration;

use serde::Serialize;

/// Returns the median: the upper one of two, 0 without values.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    percentile(&values, 0.5)
}

/// Returns the value below which this share of values is.
///
/// 0 without values.
#[must_use]
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Returns the mean and its standard error. Both are 0 without values.
#[must_use]
pub fn mean_with_error(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

/// Durations in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub longest: f64,
}

impl Times {
    /// Returns the statistics of these durations.
    #[must_use]
    pub fn of(times: &[Duration]) -> Self {
        let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        let at = |share| percentile(&times, share);
        Self { mean, p50: at(0.5), p95: at(0.95), p99: at(0.99), longest: at(1.0) }
    }

    /// Returns the median of each value over rounds, and the maximum.
    #[must_use]
    pub fn median(rounds: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| median(rounds.iter().map(value));
        Self {
            mean: of(|times| times.mean),
            p50: of(|times| times.p50),
            p95: of(|times| times.p95),
            p99: of(|times| times.p99),
            longest: rounds.iter().map(|times| times.longest).fold(0.0, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 3.0);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn percentiles_stay_within_the_values() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let found = [0.0, 0.5, 0.99, 1.0].map(|share| percentile(&values, share));
        assert_eq!(found, [0.0, 50.0, 99.0, 99.0]);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_error_of_a_mean_shrinks_with_more_values() {
        assert_eq!(mean_with_error(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(mean_with_error(&[1.0, 3.0, 1.0, 3.0]), (2.0, (1.0f64 / 3.0).sqrt()));
        assert_eq!(mean_with_error(&[]), (0.0, 0.0));
    }

    #[test]
    fn times_are_in_milliseconds() {
        let times = Times::of(&[30, 10, 20].map(Duration::from_millis));
        assert_eq!((times.mean, times.p50, times.longest), (20.0, 20.0, 30.0));
        assert_eq!(Times::of(&[]), Times::default());
        let longer = Times { p50: 40.0, longest: 50.0, ..times };
        let middle = Times::median(&[times, longer, times]);
        assert_eq!((middle.p50, middle.longest), (20.0, 50.0));
    }
}
