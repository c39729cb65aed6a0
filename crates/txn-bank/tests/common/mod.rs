//! What the tests of accounts share.

use std::time::Duration;

use txn_bank::Leg;
use txn_core::Config;

/// Machines of tests are slow and busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn config() -> Config {
    Config::default().with_janitor_interval(None).with_deadline(PATIENCE)
}

pub(crate) fn legs(legs: &[(&str, i64)]) -> Vec<Leg> {
    legs.iter().map(|(account, amount)| Leg::new(*account, *amount)).collect()
}
