//! Paths that need no server to be shown, in one program: each program of its own would be linked with everything below.

mod futures_dropped;
mod heartbeat_in_flight;
mod ledger_books;
