//! A program with a private folder, which ends with its holder.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::servers::error::{Error, OnPath, Result, last_lines};

/// The maximum time until the program answers.
pub(in crate::servers) const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the program until the pipe on its stdin is closed.
///
/// The pipe is also closed when the holder is killed.
const SCRIPT: &str = r#""$0" "$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server"#;

/// A program that runs until the handle is dropped. The drop also removes its folder.
#[derive(Debug)]
pub(in crate::servers) struct Supervised {
    folder: PathBuf,
    child: Child,
}

impl Supervised {
    /// Starts the program. `command` sets its account and its folder.
    pub(in crate::servers) fn start(
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

    pub(in crate::servers) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the error for an unhealthy program, with its last output.
    pub(in crate::servers) fn not_healthy(&self, server: &str, reason: &str) -> Error {
        let log = log_of(&self.folder);
        let tail = last_lines(&fs::read_to_string(&log).unwrap_or_default(), 20);
        Error::NotHealthy { server: server.to_owned(), reason: reason.to_owned(), log, tail }
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Ends the program, and removes its folder.
impl Drop for Supervised {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.flush();
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
