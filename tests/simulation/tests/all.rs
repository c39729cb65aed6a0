//! Seeds, schedules and mutations, in one program.
//!
//! Separate programs would each be linked with all dependencies.

mod coverage;
mod mutations;
mod schedules;
mod seeds;
