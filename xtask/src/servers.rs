//! `cargo xtask servers`, and the servers of other tasks.

use std::io::{BufRead, Write};
use std::thread;

use txn_testkit::servers::{self, Running, ServerKind};

use crate::{Failure, prerequisites};

/// Starts servers and prints their variables, one per line, on stdout.
pub(crate) fn up(kinds: &[ServerKind]) -> Result<(), Failure> {
    prerequisites::for_servers(kinds)?;
    for server in start(kinds) {
        for (name, value) in server?.variables() {
            println!("{name}={value}");
        }
    }
    Ok(())
}

/// Starts servers concurrently, because a starting server mostly waits.
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

/// Stops these servers, or all servers.
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

/// Lists the servers that are up.
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

/// Runs a private server that another program kills.
///
/// The program kills the server by lines of the input.
///
/// Prints the address whenever the server is healthy. Each line of `input` kills the node and
/// starts it again. The server ends with the input.
pub(crate) fn private(
    kind: ServerKind,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<(), Failure> {
    prerequisites::for_servers(&[kind])?;
    let mut server = servers::up_private(kind)?;
    writeln!(output, "{}", server.url())?;
    for line in input.lines() {
        line?;
        for node in server.nodes() {
            node.kill()?;
        }
        server.restart()?;
        writeln!(output, "{}", server.url())?;
    }
    Ok(())
}

/// Servers for one task. Servers that were up before stay up.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    started: Vec<ServerKind>,
    variables: Vec<(&'static str, String)>,
}

impl Borrowed {
    /// Starts the servers that are not up.
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

    /// Returns the variables with the addresses for tests.
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
