//! Starts and stops Elasticsearch and OpenSearch on this machine, without containers.
//!
//! A product is downloaded once, through Maven. A server listens on free ports of 127.0.0.1. A
//! server runs detached, and outlives the process that started it; [`up`] finds it again. All files
//! are in one folder: `$TXN_SERVERS_HOME`, or else `$XDG_CACHE_HOME/txn-servers` or
//! `~/.cache/txn-servers`. `$TXN_SERVERS_DATA` keeps the data of the servers apart, for example in
//! memory.
//!
//! Servers refuse to run as root. Root starts servers under the account `txn-servers`, which is
//! created on the first start. If that account cannot enter the caller's home, the folder is
//! `/var/cache/txn-servers`.
//!
//! A server has 300 seconds to become healthy, a cluster 600. `$TXN_SERVERS_TIMEOUT` (seconds)
//! changes that.
//!
//! The Elasticsearch package holds little more than the core: no scripts, no ingest processors, no
//! `_delete_by_query`, and only the basic analyzers. OpenSearch comes with its usual modules.
//!
//! The nodes of [`ServerKind::Partitioned`] are in network namespaces, and [`Network`] cuts links
//! between them. [`check_namespaces`] says whether this process can create namespaces.
//!
//! All functions block. Call them outside of tasks that must continue in the meantime. Linux only:
//! `/proc` identifies processes, so that the module never touches a process with the number of a
//! dead server.
//!
//! ```no_run
//! use txn_testkit::servers::{ServerKind, up, up_private};
//!
//! # fn main() -> Result<(), txn_testkit::servers::Error> {
//! // Shared: stays up, and the next caller finds it.
//! let shared = up(ServerKind::Elasticsearch)?;
//! println!("{}", shared.url());
//!
//! // Private: removed when dropped, so a test may crash it.
//! let mut private = up_private(ServerKind::Elasticsearch)?;
//! private.nodes()[0].kill()?;
//! private.restart_node(0)?;
//! # Ok(())
//! # }
//! ```

mod credentials;
mod error;
mod home;
mod launching;
mod network;
mod node;
mod products;
mod running;
mod state;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

pub use credentials::{Credentials, Password};
pub use error::{Error, Result};
pub use launching::java::{Versions, find_java};
pub use launching::process::Process;
pub use network::{Link, Loss, Network, Port, Rate, check_namespaces};
pub use node::Node;
pub use products::kind::ServerKind;
pub use products::pgbouncer::{PgBouncer, find_pgbouncer};
pub use products::postgres::{Postgres, PostgresTls, find_postgres};
pub use products::product::find_maven;
pub use products::tls::Certificates;
pub use running::Running;

use home::{Home, remove};
use launching::launch::launch;
use state::{State, take_down};

/// The prefix of the folders of private servers.
const PRIVATE: &str = "private-";

/// Returns a healthy shared server, and starts one without data if necessary.
///
/// # Errors
/// If the kind is private only, or the server cannot be downloaded, lacks a suitable Java, or does
/// not become healthy.
pub fn up(kind: ServerKind) -> Result<Running> {
    if !ServerKind::ALL.contains(&kind) {
        return Err(Error::Other(format!("{kind}: a shared server cannot be of this kind")));
    }
    let home = Home::open()?;
    let _lock = home.lock(kind.name())?;
    let folder = home.servers().join(kind.name());
    if let Some(state) = State::load(&folder)
        && state.is_well()?
    {
        return Ok(Running::new(home, state, true));
    }
    take_down(&folder, true)?;
    let state = launch(&home, kind, &folder, None, None, |_| Ok(()))?;
    Ok(Running::new(home, state, false))
}

/// Starts a private server, with its own data and ports.
///
/// Dropping the server kills and removes it. If the caller is killed, the next call of this
/// function or of [`down_all`] removes the server.
///
/// # Errors
/// Like [`up`].
pub fn up_private(kind: ServerKind) -> Result<Running> {
    up_private_with(kind, |_| Ok(()))
}

/// Starts a private server with a given heap per node.
///
/// `heap` is in MiB.
///
/// A node ends at the first `OutOfMemoryError`. [`Running::restart_node`] starts the node again.
/// Otherwise like [`up_private`].
///
/// # Errors
/// Like [`up`].
pub fn up_private_with_heap(kind: ServerKind, heap: u32) -> Result<Running> {
    start_private(kind, Some(heap), |_| Ok(()))
}

/// Starts a private server after a preparation.
///
/// `prepare` receives the nodes with empty folders of data.
///
/// Otherwise like [`up_private`]. Everything mounted on a folder of data is unmounted at the end.
///
/// # Errors
/// Like [`up`], or the error of `prepare`.
pub fn up_private_with(
    kind: ServerKind,
    prepare: impl FnOnce(&[Node]) -> Result<()>,
) -> Result<Running> {
    start_private(kind, None, prepare)
}

fn start_private(
    kind: ServerKind,
    heap: Option<u32>,
    prepare: impl FnOnce(&[Node]) -> Result<()>,
) -> Result<Running> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let home = Home::open()?;
    remove_orphans(&home)?;
    let owner = Process::current()
        .ok_or_else(|| Error::Other("/proc does not know this process".to_owned()))?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = home.servers().join(format!("{PRIVATE}{kind}-{}-{number}", owner.pid));
    let state = launch(&home, kind, &folder, Some(owner), heap, prepare)?;
    Ok(Running::new(home, state, false))
}

/// Returns the shared server of a kind, if a node is alive.
///
/// The server may be unhealthy.
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

/// Shuts a shared server down, and returns whether it was up.
///
/// The data is removed. The logs stay until the next start.
///
/// # Errors
/// If one of its processes does not end, or a file cannot be removed.
pub fn down(kind: ServerKind) -> Result<bool> {
    let home = Home::open()?;
    let _lock = home.lock(kind.name())?;
    take_down(&home.servers().join(kind.name()), true)
}

/// Shuts all shared servers down, and returns those that were up.
///
/// Also removes private servers whose holder was killed.
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
        // A folder without a recorded owner is being created, or was kept for its logs.
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
