//! Costs in requests and document writes, in virtual time.
//!
//! The store is the memory store.

mod idle;
mod transactions;
mod waiters;
