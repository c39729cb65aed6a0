//! The parts of all commands: arguments, store, output, and failures.

pub(crate) mod args;
pub(crate) mod failure;
pub(crate) mod output;

use txn_cli::{Address, OpenStore};
use txn_core::Config;

use args::Global;
use failure::{Exit, Failure};

pub(crate) fn config() -> Config {
    Config::default().with_application_name(Some("txn-bank".to_owned()))
}

pub(crate) fn address_of(global: &Global) -> Address {
    global.store.clone().unwrap_or_else(|| Address::Redb("bank.redb".into()))
}

/// Opens the store of the command. Creates a missing file only if `create`.
pub(crate) async fn open_store(
    address: &Address,
    global: &Global,
    create: bool,
) -> Result<OpenStore, Failure> {
    Ok(OpenStore::open(address, &global.access, create).await?)
}

/// The exit of a command after its output was written.
pub(crate) fn exit_after(written: std::io::Result<()>, exit: Exit) -> Result<Exit, Failure> {
    written.map(|()| exit).map_err(|error| Failure::unwritten(exit, &error))
}
