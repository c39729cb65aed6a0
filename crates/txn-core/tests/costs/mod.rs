//! Costs in requests, document writes and memory, in virtual time.
//!
//! The store is the memory store.

mod idle;
mod memory;
mod transactions;
mod waiters;
