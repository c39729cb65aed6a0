//! All tests of the outbox that need no server, as one program. Separate programs would link
//! slowly.

mod blocking;
mod faults;
mod hostile;
#[cfg(feature = "http")]
mod http;
mod local_wakeups;
mod outbox;
mod scenarios;
mod timers;
