//! Domains and collections: openings, clocks, janitor, barrier, operator's calls.

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
mod traces;
