//! The tests of this crate from outside, in one program: each program of its own would be linked with the whole engine.
//!
//! `cargo test -p txn-core --test all groups::` runs those of one file, or folder.

mod aliases;
mod barrier;
#[path = "behaviour/main.rs"]
mod behaviour;
mod clocks;
#[path = "groups/main.rs"]
mod groups;
mod history;
mod idempotency;
mod janitor;
mod lifecycle;
mod nested;
mod opening;
mod overload;
mod partitions;
#[path = "recovery/main.rs"]
mod recovery;
mod runtimes;
mod sequences;
mod serial_equivalence;
mod slow_stores;
mod support;
mod transactions;
mod updates;
