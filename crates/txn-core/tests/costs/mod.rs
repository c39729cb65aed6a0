//! Costs in requests and document writes, in virtual time on the memory store.

mod idle;
mod transactions;
mod waiters;
