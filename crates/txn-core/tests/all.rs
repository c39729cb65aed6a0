//! The integration tests of this crate, in one binary.
//!
//! A single binary is linked with the engine only once.
//! `cargo test -p txn-core --test all groups::` runs the tests of one file or folder.

mod aliases;
mod barrier;
#[path = "behaviour/main.rs"]
mod behaviour;
mod clocks;
#[path = "groups/main.rs"]
mod groups;
mod history;
mod idempotency;
mod idempotent_answers;
mod janitor;
mod lifecycle;
mod nested;
mod opening;
mod operator;
mod overload;
mod partitions;
#[path = "recovery/main.rs"]
mod recovery;
mod runtimes;
mod sequences;
mod serial_equivalence;
mod signals;
mod slow_stores;
mod support;
mod transactions;
mod updates;
