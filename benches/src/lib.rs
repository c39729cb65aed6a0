//! Benchmarks beside plain, unsafe writes: the same documents, the same server, the same run.

pub mod accounts;
pub mod load;
pub mod measure;
pub mod pair;
pub mod plain;
pub mod report;
pub mod seed;
pub mod statistics;
pub mod usage;
pub mod world;

/// Anything that stops a benchmark.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A name that no other run uses.
#[must_use]
pub fn unique(prefix: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("{prefix}-{:x}", now.unwrap_or_default().as_micros())
}

/// A number from the environment, or else `default`.
#[must_use]
pub fn from_environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
