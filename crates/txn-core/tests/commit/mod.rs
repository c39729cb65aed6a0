//! Commits and their outcomes, also with misbehaving stores, callers and runtimes.

mod endings;
mod handoff;
mod idempotency;
mod idempotent_answers;
mod in_doubt;
mod panics;
mod runtimes;
mod sequences;
mod serial_equivalence;
mod transactions;
mod updates;
