//! A program that ends with its holder, in a folder that goes with it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::error::{Error, OnPath, Result, last_lines};

/// How long it may take until it answers.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The program, and the pipe that it lives by: when that is closed, also because its holder was
/// killed, it ends.
const SCRIPT: &str = r#""$0" "$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server"#;

/// A program that runs until this is dropped. Its folder goes with it.
#[derive(Debug)]
pub(super) struct Supervised {
    folder: PathBuf,
    child: Child,
}

impl Supervised {
    /// Starts it. `command` makes the command of a program: under which account it runs, and where.
    pub(super) fn start(
        folder: &Path,
        command: impl FnOnce(&Path) -> Command,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        let log = log_of(folder);
        let output = fs::File::create(&log).on("make", &log)?;
        let errors = output.try_clone().on("open", &log)?;
        let shell = Path::new("/bin/sh");
        let child = command(shell)
            .args(["-c", SCRIPT])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .on("run", shell)?;
        Ok(Self { folder: folder.to_owned(), child })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The error for a program that does not get as far as it should, with the end of what it
    /// printed.
    pub(super) fn not_healthy(&self, server: &str, reason: &str) -> Error {
        let log = log_of(&self.folder);
        let tail = last_lines(&fs::read_to_string(&log).unwrap_or_default(), 20);
        Error::NotHealthy { server: server.to_owned(), reason: reason.to_owned(), log, tail }
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Ends it, and removes what it kept.
impl Drop for Supervised {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.flush();
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
