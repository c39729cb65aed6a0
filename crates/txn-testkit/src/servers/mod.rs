//! Starting and stopping Elasticsearch and OpenSearch on this machine, without containers.
//!
//! A product is downloaded once, through Maven. A server listens on free ports of 127.0.0.1 and
//! runs detached, so that it outlives whoever started it; [`up`] finds it again. Everything is kept
//! in one folder: `$TXN_SERVERS_HOME`, or else `$XDG_CACHE_HOME/txn-servers` or
//! `~/.cache/txn-servers`. As servers refuse to run as root, root starts them under the account
//! `txn-servers`, which is made the first time, and where that account cannot enter the caller's
//! home the folder is `/var/cache/txn-servers`.
//!
//! A server has 300 seconds to become healthy, a cluster 600; `$TXN_SERVERS_TIMEOUT` (seconds)
//! changes that.
//!
//! The Elasticsearch package holds little beside the core: no scripts, no ingest processors, no
//! `_delete_by_query`, and only the basic analyzers. OpenSearch comes with its usual modules.
//!
//! All functions block; call them outside of the tasks that a test wants to go on meanwhile. Linux
//! only: processes are told apart by what `/proc` says about them, so that a process that got the
//! number of a dead server is never touched.
//!
//! ```no_run
//! use txn_testkit::servers::{ServerKind, up, up_private};
//!
//! # fn main() -> Result<(), txn_testkit::servers::Error> {
//! // Shared: left running, found again by the next one who asks.
//! let shared = up(ServerKind::Elasticsearch)?;
//! println!("{}", shared.url());
//!
//! // Private: gone when dropped, so it may be crashed.
//! let mut private = up_private(ServerKind::Elasticsearch)?;
//! private.nodes()[0].kill()?;
//! private.restart_node(0)?;
//! # Ok(())
//! # }
//! ```

mod account;
mod command;
mod credentials;
mod elasticsearch;
mod error;
mod health;
mod home;
mod java;
mod kind;
mod launch;
mod node;
mod opensearch;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod product;
mod roles;
mod running;
mod setup;
mod state;
mod supervised;
mod tls;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

pub use credentials::{Credentials, Password};
pub use error::{Error, Result};
pub use java::{Versions, find_java};
pub use kind::ServerKind;
pub use node::Node;
pub use pgbouncer::{PgBouncer, find_pgbouncer};
pub use postgres::{Postgres, PostgresTls, find_postgres};
pub use process::Process;
pub use product::find_maven;
pub use running::Running;
pub use tls::Certificates;

use home::{Home, remove};
use launch::launch;
use state::{State, take_down};

/// Private servers are kept in folders whose names begin with this.
const PRIVATE: &str = "private-";

/// A shared server, which is started, with no data, unless it is up and healthy.
///
/// # Errors
/// If it cannot be downloaded, lacks a Java that it runs on, or does not become healthy.
pub fn up(kind: ServerKind) -> Result<Running> {
    let home = Home::open()?;
    let _lock = home.lock(kind.name())?;
    let folder = home.servers().join(kind.name());
    if let Some(state) = State::load(&folder)
        && state.is_well()?
    {
        return Ok(Running::new(home, state, true));
    }
    take_down(&folder, true)?;
    let state = launch(&home, kind, &folder, None)?;
    Ok(Running::new(home, state, false))
}

/// A new server for the caller alone, with its own data and ports, which is killed and removed when
/// it is dropped. If the caller is killed, the next call of this or of [`down_all`] removes it.
///
/// # Errors
/// Like [`up`].
pub fn up_private(kind: ServerKind) -> Result<Running> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let home = Home::open()?;
    remove_orphans(&home)?;
    let owner = Process::current()
        .ok_or_else(|| Error::Other("/proc does not know this process".to_owned()))?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = home.servers().join(format!("{PRIVATE}{kind}-{}-{number}", owner.pid));
    let state = launch(&home, kind, &folder, Some(owner))?;
    Ok(Running::new(home, state, false))
}

/// The shared server of a kind, healthy or not, if any of its nodes is there.
///
/// # Errors
/// If the folder of the servers cannot be used.
pub fn find(kind: ServerKind) -> Result<Option<Running>> {
    let home = Home::open()?;
    let state = State::load(&home.servers().join(kind.name()));
    Ok(state
        .filter(|state| state.nodes.iter().any(Node::is_alive))
        .map(|state| Running::new(home, state, true)))
}

/// Shuts a shared server down and removes its data; its logs stay until it is started again.
/// Returns whether it was up.
///
/// # Errors
/// If one of its processes does not end, or a file cannot be removed.
pub fn down(kind: ServerKind) -> Result<bool> {
    let home = Home::open()?;
    let _lock = home.lock(kind.name())?;
    take_down(&home.servers().join(kind.name()), true)
}

/// Shuts all shared servers down, and removes the private ones whose holder was killed. Returns the
/// shared ones that were up.
///
/// # Errors
/// Like [`down`].
pub fn down_all() -> Result<Vec<ServerKind>> {
    let mut ended = Vec::new();
    for kind in ServerKind::ALL {
        if down(kind)? {
            ended.push(kind);
        }
    }
    remove_orphans(&Home::open()?)?;
    Ok(ended)
}

fn remove_orphans(home: &Home) -> Result<()> {
    let _lock = home.lock(PRIVATE)?;
    for folder in private_folders(home) {
        // One that is being made, or was kept for its logs, says nothing.
        let owner = State::load(&folder).and_then(|state| state.owner);
        if owner.is_some_and(|owner| !owner.is_alive()) {
            take_down(&folder, false)?;
            remove(&folder)?;
        }
    }
    Ok(())
}

fn private_folders(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.servers()).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PRIVATE))
        .map(|entry| entry.path())
        .collect()
}
