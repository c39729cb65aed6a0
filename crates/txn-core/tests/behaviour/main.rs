//! What the engine does when stores, callers and processes misbehave, in virtual time.

mod endings;
mod handoff;
mod in_doubt;
mod logs;
mod panics;
mod reading;
pub(crate) mod support;
