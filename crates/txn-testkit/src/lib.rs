//! Real servers and real faults for tests and benchmarks (not published).
//!
//! [`servers`] downloads, starts, stops, kills and pauses Elasticsearch and OpenSearch on this
//! machine, without containers. [`mod@env`] returns the addresses of the servers that
//! `cargo xtask servers up` started. [`proxy`] is between a client and a server, and does to
//! requests what networks do.

pub mod env;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod servers;
