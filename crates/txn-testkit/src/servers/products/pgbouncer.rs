//! A private PgBouncer in front of a PostgreSQL.
//!
//! Each transaction gets another connection.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::servers::error::{Error, OnPath, Result};
use crate::servers::launching::account::Account;
use crate::servers::launching::supervised::{PATIENCE, Supervised};
use crate::servers::products::postgres::Postgres;

/// The paths of the program on Debian and other systems.
const PLACES: [&str; 3] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];

/// A PgBouncer in transaction mode, with a socket in its own folder.
///
/// Dropping it ends the program, and removes the folder.
#[derive(Debug)]
pub struct PgBouncer(Supervised);

/// Returns the path of the program.
///
/// # Errors
/// [`Error::Missing`], with the package to install.
pub fn find_pgbouncer() -> Result<PathBuf> {
    let found = PLACES.iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| Error::Missing {
        what: "PgBouncer".to_owned(),
        remedy: "install it (Debian and Ubuntu: the package `pgbouncer`)".to_owned(),
    })
}

impl PgBouncer {
    /// Starts a PgBouncer with a number of server connections.
    ///
    /// Waits until it listens.
    ///
    /// # Errors
    /// If it is not installed, or does not start.
    pub fn start(server: &Postgres, connections: u16) -> Result<Self> {
        let program = find_pgbouncer()?;
        let folder = server.socket().join("bouncer");
        fs::create_dir(&folder).on("make", &folder)?;
        let (of_server, own) = (server.socket().display(), folder.display());
        let users = folder.join("users");
        fs::write(&users, "\"postgres\" \"\"\n").on("write", &users)?;
        let settings = format!(
            "[databases]\npostgres = host={of_server} dbname=postgres\n\
             [pgbouncer]\nlisten_addr =\nlisten_port = 5432\nunix_socket_dir = {own}\nauth_type = trust\n\
             auth_file = {}\npool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 200\n",
            users.display()
        );
        let file = folder.join("pgbouncer.ini");
        fs::write(&file, settings).on("write", &file)?;
        // PgBouncer refuses to run as root.
        let account = geteuid().is_root().then(Account::ensure).transpose()?;
        if let Some(account) = &account {
            account.own(&folder)?;
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(&folder);
            if let Some(account) = &account {
                account.apply(&mut command);
            }
            command
        };
        let this = Self(Supervised::start(&folder, command, &program, [&file])?);
        let end = Instant::now() + PATIENCE;
        while !folder.join(".s.PGSQL.5432").exists() {
            if Instant::now() >= end {
                return Err(this.0.not_healthy("PgBouncer", "it does not listen"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(this)
    }

    /// Returns the folder of its socket, as the host for clients.
    ///
    /// User and database are `postgres`.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.0.folder()
    }
}
