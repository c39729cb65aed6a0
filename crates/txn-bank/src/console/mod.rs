//! The parts of all commands: arguments, store, output, and failures.

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
    Config::default().with_application_name(Some("txn-bank".to_owned()))
}

pub(crate) fn address_of(global: &Global) -> Address {
    global.store.clone().unwrap_or_else(|| Address::Redb("bank.redb".into()))
}

/// The exit of a command after its output was written.
pub(crate) fn said(written: std::io::Result<()>, exit: Exit) -> Result<Exit, Failure> {
    written.map(|()| exit).map_err(|error| Failure::unwritten(exit, &error))
}
