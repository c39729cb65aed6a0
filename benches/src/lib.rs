//! Benchmarks against plain, unsafe writes: same documents, same server, same run.

pub mod accounts;
pub mod content;
pub mod load;
pub mod measure;
pub mod network;
pub mod pair;
pub mod plain;
pub mod report;
pub mod seed;
pub mod setup;
pub mod statistics;
pub mod systems;
pub mod usage;
pub mod world;

use txn_core::store::Store;

/// An error that stops a benchmark.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Returns the HTTP client of the plain and peer clients.
///
/// The client asks for no compression, like transactions, with any features of the build.
/// Compression would cost the servers time.
///
/// # Errors
/// No client can be created.
pub(crate) fn http() -> Result<reqwest::Client, Failure> {
    Ok(http_builder().build()?)
}

pub(crate) fn http_builder() -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().no_proxy().no_gzip();
    builder.timeout(std::time::Duration::from_secs(30))
}

/// Returns a name that no other run uses.
#[must_use]
pub fn unique(prefix: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("{prefix}-{:x}", now.unwrap_or_default().as_micros())
}

/// Drops every collection of a domain, and those with its prefix.
///
/// # Errors
/// As the store.
pub async fn drop_all(store: &dyn Store, domain: &str) -> Result<(), Failure> {
    let own = domain.replace('-', ".");
    for prefix in [format!("txn-{own}-"), format!("{own}-"), format!("{domain}-")] {
        for collection in store.list_collections(&prefix).await? {
            store.drop_collection(&collection).await?;
        }
    }
    Ok(())
}

/// Returns a number from the environment, or else `default`.
#[must_use]
pub fn from_environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
