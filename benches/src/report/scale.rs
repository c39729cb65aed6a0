//! The amount of measurements in a report.

use std::time::Duration;

use serde::Serialize;

use crate::measure::Pace;

/// The amount of measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// Whether the whole report has to end within minutes.
    pub quick: bool,
    /// The pace of every load.
    pub pace: Pace,
    /// The pace of loads without an aim.
    pub sketch: Pace,
    /// The number of measurements of one client, for each size.
    pub samples: usize,
    /// The numbers of documents of a transaction.
    pub sizes: Vec<usize>,
    /// The numbers of concurrent clients.
    pub clients: Vec<usize>,
    /// The numbers of accounts that clients contend for.
    pub contention: Vec<usize>,
    /// The number of accounts of the spread load.
    pub accounts: usize,
    /// The duration of an overload.
    pub overload: Duration,
    /// The duration of the phases before and after the overload.
    pub around_overload: Duration,
}

impl Scale {
    /// Returns a scale for a report within five minutes.
    #[must_use]
    pub fn quick() -> Self {
        let pace = |rounds, millis| Pace { rounds, span: Duration::from_millis(millis) };
        Self {
            quick: true,
            pace: pace(3, 1_000),
            sketch: pace(1, 1_000),
            samples: 50,
            sizes: vec![1, 2, 5, 10, 20, 100],
            clients: vec![1, 16, 64, 256],
            contention: vec![3, 10, 100, 10_000],
            accounts: 10_000,
            overload: Duration::from_secs(6),
            around_overload: Duration::from_secs(5),
        }
    }

    /// Returns the full scale.
    #[must_use]
    pub fn full() -> Self {
        let pace = |rounds, millis| Pace { rounds, span: Duration::from_millis(millis) };
        Self {
            quick: false,
            pace: pace(5, 2_000),
            sketch: pace(3, 2_000),
            samples: 200,
            contention: vec![3, 10, 30, 100, 300, 1_000, 10_000],
            overload: Duration::from_secs(60),
            around_overload: Duration::from_secs(15),
            ..Self::quick()
        }
    }
}
