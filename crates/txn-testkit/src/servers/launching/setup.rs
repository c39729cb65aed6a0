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
    /// Returns a command in a node's folder, under the servers' account.
    ///
    /// The command inherits none of the caller's variables. A detached command has its own session,
    /// and so outlives the caller.
    pub(crate) fn command(&self, program: &OsStr, node: &Node, detached: bool) -> Command {
        // `setsid` and `nsenter` replace themselves, so the process id is the program's.
        let mut words = detached.then_some(OsStr::new("setsid")).into_iter().chain([program]);
        let account = self.home.account();
        let mut command = match &self.state.network {
            Some(network) => network.command(&self.state.folder, &node.name, account),
            None => Command::new(words.next().unwrap_or(program)),
        };
        command.args(words).env_clear().current_dir(&node.folder).env("HOME", &node.folder);
        if let Some(path) = env::var_os("PATH") {
            command.env("PATH", path);
        }
        match account {
            Some(account) if self.state.network.is_none() => account.apply(&mut command),
            _ => {}
        }
        command
    }
}
