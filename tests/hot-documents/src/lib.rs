//! A simulation of processes that contend for hot documents.
//!
//! The processes call the policy of `txn_protocol::board`, so the simulated policy is the one of
//! the engine. The engine itself is simulated in outline: batches, locks, records, applies, a
//! hand-off table and a cache. A seed determines the run.

pub mod measure;
pub mod network;
pub mod process;
pub mod random;
pub mod report;
pub mod scenario;
pub mod store;
pub mod workload;
pub mod world;
