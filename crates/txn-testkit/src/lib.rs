//! Real servers for tests and benchmarks (not published).
//!
//! [`servers`] downloads, starts, stops, kills and pauses Elasticsearch and OpenSearch on this
//! machine, without containers; [`mod@env`] tells a test where the servers that
//! `cargo xtask servers up` started are to be found.

pub mod env;
pub mod servers;
