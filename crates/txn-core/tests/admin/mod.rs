//! Domains and their collections: opening, clocks, the janitor, the barrier, the operator's calls.

mod aliases;
mod barrier;
mod clocks;
mod commits;
mod janitor;
mod logs;
mod opening;
mod operator;
mod partitions;
mod signals;
