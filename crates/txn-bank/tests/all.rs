//! All tests of the bank that need no server, as one program. Separate programs would link slowly.

mod accounts;
mod bank;
mod books;
#[path = "command/main.rs"]
mod command;
mod common;
mod owners;
mod statements;
