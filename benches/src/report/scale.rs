//! How much a report measures.

use std::time::Duration;

use serde::Serialize;

use crate::measure::Pace;

/// How much is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// Whether the whole has to end within minutes.
    pub quick: bool,
    /// Of every load.
    pub pace: Pace,
    /// Of loads that only draw a line.
    pub sketch: Pace,
    /// How often one client is measured, at each size.
    pub samples: usize,
    /// Documents of a transaction.
    pub sizes: Vec<usize>,
    /// Clients at once.
    pub clients: Vec<usize>,
    /// How many accounts clients contend for.
    pub contention: Vec<usize>,
    /// Accounts that are spread over.
    pub accounts: usize,
    /// How long an overload lasts.
    pub overload: Duration,
    /// How long is looked before it and behind it.
    pub around_overload: Duration,
}

impl Scale {
    /// Within five minutes.
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

    /// Everything, as long as it takes.
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
