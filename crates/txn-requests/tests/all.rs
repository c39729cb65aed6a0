//! The tests of requests that need no server, in one program: each program of its own would be linked with everything below.

mod damaged;
mod faults;
mod requests;
mod reversals;
mod scenarios;
mod schema;
