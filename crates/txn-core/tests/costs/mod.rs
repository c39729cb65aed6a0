//! Costs in requests, document writes, memory and bytes of records, in virtual time.
//!
//! The store is the memory store.

mod disk;
mod idle;
mod memory;
mod transactions;
mod waiters;
