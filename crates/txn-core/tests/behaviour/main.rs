//! The engine with misbehaving stores, callers and processes, in virtual time.

mod endings;
mod handoff;
mod in_doubt;
mod logs;
mod panics;
mod reading;
