//! The limit of open files that Elasticsearch checks.
//!
//! A node that listens on 127.0.0.1 only does not check the limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::error::{Error, OnPath, Result};
use crate::servers::launching::command::run;

/// The option of `prlimit` for the smallest accepted limit.
const LIMIT: &str = "--nofile=65536:65536";

const SOURCE: &str = include_str!("open_files.c");

/// Prepares a folder for [`command`].
///
/// Root may raise the limit, except in some containers. There the server gets a library that
/// reports a higher limit. A small test cluster opens far fewer files.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    if run(Command::new("prlimit").args([LIMIT, "true"])).is_ok() {
        return Ok(());
    }
    let source = folder.join("open_files.c");
    fs::write(&source, SOURCE).on("write", &source)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(library(folder)).arg(&source).arg("-ldl");
    run(&mut compiler).map(drop).map_err(|error| Error::Missing {
        what: "a limit of 65,536 open files".to_owned(),
        remedy: format!("raise it, or install a C compiler ({error})"),
    })
}

/// Returns a command that runs its further arguments with the limit.
pub(crate) fn command(folder: &Path) -> Command {
    let library = library(folder);
    let (program, argument) = match library.exists() {
        true => ("env", format!("LD_PRELOAD={}", library.display())),
        false => ("prlimit", LIMIT.to_owned()),
    };
    let mut command = Command::new(program);
    command.arg(argument);
    command
}

fn library(folder: &Path) -> PathBuf {
    folder.join("open_files.so")
}
