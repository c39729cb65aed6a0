//! One node of a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::process::Process;

/// How long a node may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// One node: a Java process, its folder and its ports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) process: Process,
    pub(crate) folder: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) http_port: u16,
    pub(crate) transport_port: u16,
}

impl Node {
    /// The node's name in its cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, `http://127.0.0.1:…`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id of the server itself, no wrapper's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// The folder of its data.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// What the process prints. The server's own logs are in a folder `logs` beside it.
    #[must_use]
    pub fn console_log(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    /// Whether its process is there, paused or not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Whether its process is there and not paused.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_alive() && !self.process.is_paused()
    }

    /// Crashes it: SIGKILL. Returns once the process is gone; its data stays.
    ///
    /// # Errors
    /// If the process is still there, or belongs to somebody else.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Pauses it: SIGSTOP. Its connections stay open and nothing answers, as if the network or the
    /// machine hung. Returns once it is paused.
    ///
    /// # Errors
    /// If it is not running.
    pub fn stop(&self) -> Result<()> {
        self.was_running(self.process.pause()?, "paused")
    }

    /// Lets it go on after [`stop`](Self::stop): SIGCONT.
    ///
    /// # Errors
    /// If it is not running.
    pub fn cont(&self) -> Result<()> {
        self.was_running(self.process.resume()?, "continued")
    }

    /// Shuts it down in order: SIGTERM, and SIGKILL if that does not end it in time.
    ///
    /// # Errors
    /// If the process is still there, or belongs to somebody else.
    pub fn shut_down(&self) -> Result<()> {
        self.process.end(PATIENCE)
    }

    fn was_running(&self, was_running: bool, done: &str) -> Result<()> {
        if was_running {
            return Ok(());
        }
        Err(Error::Other(format!("{} is not running and cannot be {done}", self.name)))
    }
}
