//! A private PostgreSQL, which ends with its handle.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::servers::error::{Error, OnPath, Result};
use crate::servers::launching::account::Account;
use crate::servers::launching::command::run;
use crate::servers::launching::ports::Ports;
use crate::servers::launching::supervised::{PATIENCE, Supervised};
use crate::servers::products::tls::Certificates;

/// The variable with the folder of the programs, if it is unusual.
const BIN_VARIABLE: &str = "TXN_POSTGRES_BIN";

/// The folder of the programs of each version on Debian.
const DEBIAN: &str = "/usr/lib/postgresql";

/// An empty PostgreSQL, with a socket in its own folder.
///
/// Dropping it ends the server, and removes the folder. If the holder is killed, the server ends,
/// too.
#[derive(Debug)]
pub struct Postgres {
    server: Supervised,
    tls: Option<PostgresTls>,
}

/// The access to a PostgreSQL with TLS.
#[derive(Clone, Debug)]
pub struct PostgresTls {
    /// The port on 127.0.0.1, which requires TLS.
    pub port: u16,
    /// The authority of its certificate, as PEM.
    pub authority: String,
}

/// Returns the folder of the programs of PostgreSQL.
///
/// # Errors
/// [`Error::Missing`], with the package to install.
pub fn find_postgres() -> Result<PathBuf> {
    let is_it =
        |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let named = std::env::var_os(BIN_VARIABLE).map(PathBuf::from);
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    // The newest version first.
    versions.sort_by_key(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        std::cmp::Reverse(name.parse::<u32>().unwrap_or_default())
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let debian = versions.into_iter().map(|version| version.join("bin"));
    named.into_iter().chain(debian).chain(of_path).find(is_it).ok_or_else(|| Error::Missing {
        what: "PostgreSQL".to_owned(),
        remedy: format!(
            "install it (Debian and Ubuntu: the package `postgresql`), or set {BIN_VARIABLE} to the folder of initdb"
        ),
    })
}

impl Postgres {
    /// Starts a PostgreSQL, and waits until it answers.
    ///
    /// # Errors
    /// If it is not installed, or does not start.
    pub fn start() -> Result<Self> {
        Self::start_as(false)
    }

    /// As [`Postgres::start`], also with TLS on 127.0.0.1.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with_tls() -> Result<Self> {
        Self::start_as(true)
    }

    fn start_as(by_tls: bool) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let programs = find_postgres()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("txn-postgres-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).on("make", &folder)?;
        let started = Self::start_in(&programs, &folder, by_tls);
        if started.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        started
    }

    fn start_in(programs: &Path, folder: &Path, by_tls: bool) -> Result<Self> {
        let private = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder, private).on("open", folder)?;
        // PostgreSQL refuses to run as root.
        let account = geteuid().is_root().then(Account::ensure).transpose()?;
        if let Some(account) = &account {
            account.own(folder)?;
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(folder);
            if let Some(account) = &account {
                account.apply(&mut command);
            }
            command
        };
        let data = folder.join("data");
        run(command(&programs.join("initdb"))
            .args([
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "-D",
            ])
            .arg(&data))?;
        let tls = by_tls.then(|| PostgresTls::prepare(folder, &data)).transpose()?;
        if let Some(account) = &account {
            account.own(folder)?;
        }
        let places = [OsStr::new("-D"), data.as_os_str(), OsStr::new("-k"), folder.as_os_str()];
        let settings = ["-c", "fsync=off", "-c", "max_connections=50"].map(OsString::from);
        let by_tls = PostgresTls::arguments(tls.as_ref()).into_iter().map(OsString::from);
        let arguments = places.map(OsStr::to_owned).into_iter().chain(settings).chain(by_tls);
        let server = Supervised::start(folder, command, &programs.join("postgres"), arguments)?;
        let this = Self { server, tls };
        let end = Instant::now() + PATIENCE;
        loop {
            let mut ask = command(&programs.join("pg_isready"));
            let port = this.tls.as_ref().map_or(5432, |tls| tls.port).to_string();
            if run(ask.args(["-q", "-U", "postgres", "-p", &port, "-h"]).arg(folder)).is_ok() {
                return Ok(this);
            }
            if Instant::now() >= end {
                return Err(this.server.not_healthy("PostgreSQL", "it does not answer"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the access with TLS, if the server was started with TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&PostgresTls> {
        self.tls.as_ref()
    }

    /// Returns the folder of its socket, as the host for clients.
    ///
    /// User and database are `postgres`.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.server.folder()
    }
}

impl PostgresTls {
    /// Creates certificates, and requires TLS for TCP connections.
    fn prepare(folder: &Path, data: &Path) -> Result<Self> {
        let Certificates { authority, server, server_key } = Certificates::make()?;
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).on("write", &path)?;
            // PostgreSQL refuses a key that other users can read.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).on("keep", &path)
        };
        write(folder.join("server.crt"), &server)?;
        write(folder.join("server.key"), &server_key)?;
        let access = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
        write(data.join("pg_hba.conf"), access)?;
        Ok(Self { port: Ports::default().general()?, authority })
    }

    fn arguments(tls: Option<&Self>) -> Vec<String> {
        let settings = match tls {
            None => vec!["listen_addresses=".to_owned()],
            Some(tls) => vec![
                "listen_addresses=127.0.0.1".to_owned(),
                format!("port={}", tls.port),
                "ssl=on".to_owned(),
                "ssl_cert_file=../server.crt".to_owned(),
                "ssl_key_file=../server.key".to_owned(),
            ],
        };
        settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
    }
}
