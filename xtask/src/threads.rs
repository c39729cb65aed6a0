//! `cargo xtask threads`: tests parts of the engine in chosen schedules of their threads.

use std::env;

use crate::Failure;
use crate::cargo::{cargo, target};
use crate::steps::watch;

/// The part of the names of tests that need `--cfg shuttle`.
const SCHEDULES: &str = "schedules::";

/// Runs the tests in a folder of builds of their own, because the flag rebuilds all packages.
pub(crate) fn test(schedules: Option<u32>) -> Result<(), Failure> {
    let mut command = cargo("test -p txn-core --lib --");
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    command.arg(SCHEDULES).env("RUSTFLAGS", format!("{flags} --cfg shuttle"));
    command.env("CARGO_TARGET_DIR", target().join("threads"));
    if let Some(schedules) = schedules {
        command.env("TXN_SCHEDULES", schedules.to_string());
    }
    watch(command, &mut Vec::new())
}
