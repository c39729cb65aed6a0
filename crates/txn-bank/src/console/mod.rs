//! What every command has: its arguments, its store, its output, and how it fails.

pub(crate) mod access;
pub(crate) mod address;
pub(crate) mod args;
pub(crate) mod failure;
pub(crate) mod output;
pub(crate) mod store;

use txn_core::Config;

use address::Address;
use args::Global;
use failure::{Exit, Failure};

pub(crate) fn config() -> Config {
    Config::default().with_application(Some("txn-bank".to_owned()))
}

pub(crate) fn address_of(global: &Global) -> Address {
    global.store.clone().unwrap_or_else(|| Address::Redb("bank.redb".into()))
}

/// The exit of a command that was carried out, once what it had to say is written.
pub(crate) fn said(written: std::io::Result<()>, exit: Exit) -> Result<Exit, Failure> {
    written.map(|()| exit).map_err(|error| Failure::unwritten(exit, &error))
}
