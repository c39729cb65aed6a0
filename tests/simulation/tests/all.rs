//! Worlds, schedules and mutations, in one program: each program of its own would be linked with everything below.

mod mutations;
mod schedules;
mod seeds;
