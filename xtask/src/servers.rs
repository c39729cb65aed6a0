//! `cargo xtask servers`, and the servers that other tasks start for themselves.

use std::thread;

use txn_testkit::servers::{self, Running, ServerKind};

use crate::{Failure, prerequisites};

/// Starts servers and prints their variables, one in a line, on stdout.
pub(crate) fn up(kinds: &[ServerKind]) -> Result<(), Failure> {
    prerequisites::for_servers(kinds)?;
    for server in start(kinds) {
        for (name, value) in server?.variables() {
            println!("{name}={value}");
        }
    }
    Ok(())
}

/// Starts servers at the same time: a server that starts spends much of the time waiting.
fn start(kinds: &[ServerKind]) -> Vec<servers::Result<Running>> {
    thread::scope(|scope| {
        let starts = kinds.iter().map(|&kind| scope.spawn(move || servers::up(kind)));
        let starts: Vec<_> = starts.collect();
        let ends = starts.into_iter().map(|start| match start.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect()
    })
}

/// Stops servers; all of them if none is named.
pub(crate) fn down(kinds: &[ServerKind]) -> Result<(), Failure> {
    let mut ended = Vec::new();
    if kinds.is_empty() {
        ended = servers::down_all()?;
    }
    for &kind in kinds {
        if servers::down(kind)? {
            ended.push(kind);
        }
    }
    for kind in &ended {
        eprintln!("{kind}: stopped");
    }
    if ended.is_empty() {
        eprintln!("nothing was running");
    }
    Ok(())
}

/// Lists what is up.
pub(crate) fn status() -> Result<(), Failure> {
    for kind in ServerKind::ALL {
        let Some(server) = servers::find(kind)? else {
            println!("{kind}: down");
            continue;
        };
        println!("{kind}: {}", if server.is_healthy()? { "healthy" } else { "not healthy" });
        for node in server.nodes() {
            let state = match (node.is_alive(), node.is_active()) {
                (true, true) => "runs",
                (true, false) => "paused",
                (false, _) => "dead",
            };
            let (name, url, pid) = (node.name(), node.url(), node.pid());
            println!("  {name} {url} {state}, process {pid}, log {}", node.console_log().display());
        }
    }
    Ok(())
}

/// Servers for one task. Those that were up before are left up.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    started: Vec<ServerKind>,
    variables: Vec<(&'static str, String)>,
}

impl Borrowed {
    /// Starts what is not up.
    pub(crate) fn up(kinds: &[ServerKind]) -> Result<Self, Failure> {
        let mut borrowed = Self::default();
        let mut failed = None;
        for server in start(kinds) {
            match server {
                Ok(server) => {
                    if !server.was_reused() {
                        borrowed.started.push(server.kind());
                    }
                    borrowed.variables.extend(server.variables());
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(borrowed), |error| Err(error.into()))
    }

    /// The variables that tell tests where the servers are.
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        for &kind in &self.started {
            if let Err(error) = servers::down(kind) {
                eprintln!("{kind}: {error}");
            }
        }
    }
}
