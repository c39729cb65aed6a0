//! All tests of the outbox that need no server, as one program. Separate programs would link
//! slowly.

mod blocking;
mod faults;
mod fresh;
mod hostile;
#[cfg(feature = "http")]
mod http;
mod outbox;
mod scenarios;
mod timers;
