//! Suites that span crates, and what they share.
//!
//! The suites are in `tests/tests`. Those of the feature `live` run on one server of each kind, those of the
//! feature `cluster` on three nodes; `cargo xtask test` starts the servers and says where they are.

pub mod bank;
pub mod coordinator;
mod everywhere;
pub mod faults;
pub mod ground;
pub mod ledger;
pub mod plain;
pub mod steps;
pub mod tapped;

/// A name that no other run uses: for domains and collections.
#[must_use]
pub fn unique(what: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let micros = now.unwrap_or_default().as_micros();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{micros:x}-{:x}-{count}", std::process::id())
}
