//! The tests of the bank that need no server, in one program: each program of its own would be linked with everything below.

mod accounts;
mod bank;
mod books;
#[path = "command/main.rs"]
mod command;
mod common;
mod owners;
mod statements;
