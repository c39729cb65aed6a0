//! The tests of locks that need no server, in one program: each program of its own would be linked with everything below.

mod fairness;
mod faults;
mod locks;
mod scenarios;
