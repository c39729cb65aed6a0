//! The parameters of configuring and starting a node.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::servers::home::Home;
use crate::servers::node::Node;
use crate::servers::state::State;

/// The parameters of configuring and starting nodes.
pub(crate) struct Setup<'a> {
    pub(crate) home: &'a Home,
    pub(crate) product: &'a Path,
    pub(crate) state: &'a State,
}

impl Setup<'_> {
    /// Returns a command that runs in a node's folder, under the servers' account.
    ///
    /// The command inherits none of the caller's variables. A detached command has its own session,
    /// and so outlives the caller.
    pub(crate) fn command(&self, program: &OsStr, node: &Node, detached: bool) -> Command {
        // `setsid` replaces itself by the program, so the process id is the program's.
        let mut command = if detached {
            let mut command = Command::new("setsid");
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command.env_clear().current_dir(&node.folder).env("HOME", &node.folder);
        if let Some(path) = env::var_os("PATH") {
            command.env("PATH", path);
        }
        if let Some(account) = self.home.account() {
            account.apply(&mut command);
        }
        command
    }
}
