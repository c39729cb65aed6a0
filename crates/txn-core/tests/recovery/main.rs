//! Recovery, in virtual time: what becomes of locks and records that somebody left, and what that costs.

mod costs;
mod members;
mod old_reads;
mod records;
mod strays;
mod world;
