//! The proof of what `docs/isolation.md` promises.
//!
//! - [`workload`] runs seeded random transactions over any number of processes and records a [`History`].
//! - [`check()`] judges a history: is it strictly serialisable, and did every transaction happen whole or not at
//!   all?
//! - [`anomalies`] are the named ones, as explicit schedules of two and three sessions on a [`fixture::Fixture`].
//!
//! The suites are in `tests/histories/tests`. Those of the feature `live` run on one server of each kind.

pub mod anomalies;
mod check;
pub mod fixture;
pub mod history;
mod recorder;
pub mod workload;

pub use check::{Answer, Finding, Verdict, check};
pub use history::History;
pub use workload::{Fleet, Stop, Workload, WorkloadConfig};
