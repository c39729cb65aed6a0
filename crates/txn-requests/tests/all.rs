//! All tests of requests that need no server, as one program. Separate programs would link slowly.

mod damaged;
mod faults;
mod requests;
mod reversals;
mod scenarios;
mod schema;
