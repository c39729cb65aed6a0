//! The tests of the outbox on servers, as one program.

mod live_http;
mod live_outbox;
mod live_postgres;
mod scenarios;
