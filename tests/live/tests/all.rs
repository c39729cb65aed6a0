//! Tests without a server, in one program.
//!
//! Each further program would be linked with all dependencies.

mod futures_dropped;
mod heartbeat_in_flight;
mod ledger_books;
