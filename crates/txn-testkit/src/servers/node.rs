//! One node of a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use crate::servers::launching::process::{Process, java_processes_of};

/// The time that a node has to end.
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
    /// Returns the node's name in its cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address, `http://127.0.0.1:…`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the process id of the server, not that of a wrapper.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Returns the folder of the data.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// Returns the file with the output of the process.
    ///
    /// The server's own logs are in a folder `logs` next to the file.
    #[must_use]
    pub fn console_log(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    /// Whether the process is alive, even if it is paused.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Whether the process is alive and not paused.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_alive() && !self.process.is_paused()
    }

    /// Kills the node with SIGKILL, as in a crash.
    ///
    /// Returns after the process has ended. The data stays.
    ///
    /// # Errors
    /// If the process is still alive, or belongs to another user.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Kills all processes of the node with SIGKILL.
    ///
    /// The processes of a start are killed, too.
    ///
    /// A start of the node that is under way fails.
    ///
    /// # Errors
    /// Like [`kill`](Self::kill).
    pub fn kill_all(&self) -> Result<()> {
        self.kill()?;
        java_processes_of(&self.folder).iter().try_for_each(Process::kill)
    }

    /// Pauses the node with SIGSTOP, and returns after the pause began.
    ///
    /// The connections stay open and nothing answers, as if the network or the machine hung.
    ///
    /// # Errors
    /// If the node is not running.
    pub fn stop(&self) -> Result<()> {
        self.was_running(self.process.pause()?, "paused")
    }

    /// Continues the node after [`stop`](Self::stop), with SIGCONT.
    ///
    /// # Errors
    /// If the node is not running.
    pub fn cont(&self) -> Result<()> {
        self.was_running(self.process.resume()?, "continued")
    }

    /// Shuts the node down with SIGTERM, and with SIGKILL after a timeout.
    ///
    /// # Errors
    /// If the process is still alive, or belongs to another user.
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
