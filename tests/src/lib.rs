//! Suites that span crates.
