//! Tests of the guarantees in `docs/isolation.md`.
//!
//! - [`workload`] runs seeded random transactions over any number of processes and records a
//!   [`History`].
//! - [`check()`] checks a history for strict serialisability, and that every transaction happened
//!   whole or not at all.
//! - [`anomalies`] has the named anomalies, as explicit schedules of two and three sessions on a
//!   [`fixture::Fixture`].
//!
//! The suites are in `tests/histories/tests`. The suites of the feature `live` run on one server of
//! each kind.

pub mod anomalies;
mod check;
pub mod fixture;
pub mod history;
mod recorder;
pub mod workload;

pub use check::{Answer, Finding, Verdict, check};
pub use history::History;
pub use workload::{Fleet, Stop, Workload, WorkloadConfig};
