//! The products that can be started, and their files.

pub(crate) mod elasticsearch;
pub(crate) mod kind;
pub(crate) mod opensearch;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod product;
pub(crate) mod roles;
pub(crate) mod tls;

/// Returns the options of the Java machine of each node.
///
/// `TXN_SERVERS_JAVA_OPTIONS` adds more, separated by spaces.
fn java_options() -> Vec<String> {
    let more = std::env::var("TXN_SERVERS_JAVA_OPTIONS").unwrap_or_default();
    ["-Xms512m", "-Xmx512m"].into_iter().chain(more.split_whitespace()).map(str::to_owned).collect()
}
