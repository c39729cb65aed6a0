//! The shared parts of the account tests.

use std::time::Duration;

use txn_bank::Leg;
use txn_core::Config;

/// Long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn config() -> Config {
    Config::default().with_janitor_interval(None).with_timeout(PATIENCE)
}

pub(crate) fn legs(legs: &[(&str, i64)]) -> Vec<Leg> {
    legs.iter().map(|(account, amount)| Leg::new(*account, *amount)).collect()
}
