//! What the engine does when stores, callers and processes misbehave, in virtual time.

mod endings;
mod in_doubt;
mod logs;
mod panics;
mod reading;
mod succession;
pub(crate) mod support;
