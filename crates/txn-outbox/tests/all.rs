//! The tests of the outbox that need no server, in one program: each program of its own would be linked with everything below.

mod blocking;
mod faults;
mod hostile;
#[cfg(feature = "http")]
mod http;
mod outbox;
mod scenarios;
