//! A PostgreSQL of one's own, for as long as it is kept.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use super::account::Account;
use super::command::run;
use super::error::{Error, OnPath, Result, last_lines};

/// Names the folder of its programs, if it is not where it usually is.
const BIN_VARIABLE: &str = "TXN_POSTGRES_BIN";

/// Where Debian keeps the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// How long it may take until it answers.
const PATIENCE: Duration = Duration::from_secs(120);

/// The server, and the pipe that it lives by: when that is closed, also because its holder was killed, it ends.
const SCRIPT: &str = r#""$0" "$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server"#;

/// A PostgreSQL with no data, which listens on a socket in its own folder. It ends, and its folder goes, when this is
/// dropped; when its holder is killed it ends as well.
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    child: Child,
}

/// The folder of the programs of PostgreSQL.
///
/// # Errors
/// [`Error::Missing`], which says what to install.
pub fn find_postgres() -> Result<PathBuf> {
    let is_it =
        |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let named = std::env::var_os(BIN_VARIABLE).map(PathBuf::from);
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    // The newest first.
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
    /// Starts one, and waits until it answers.
    ///
    /// # Errors
    /// If it is not installed, or does not start.
    pub fn start() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let programs = find_postgres()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("txn-postgres-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).on("make", &folder)?;
        let started = Self::start_in(&programs, &folder);
        if started.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        started
    }

    fn start_in(programs: &Path, folder: &Path) -> Result<Self> {
        let private = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder, private).on("open", folder)?;
        // It refuses to run as root.
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
        let log = folder.join("log");
        let output = fs::File::create(&log).on("make", &log)?;
        let errors = output.try_clone().on("open", &log)?;
        let child = command(Path::new("/bin/sh"))
            .args(["-c", SCRIPT])
            .arg(programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50"])
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .on("run", Path::new("/bin/sh"))?;
        let this = Self { folder: folder.to_owned(), child };
        let end = Instant::now() + PATIENCE;
        loop {
            let mut ask = command(&programs.join("pg_isready"));
            if run(ask.args(["-q", "-U", "postgres", "-h"]).arg(folder)).is_ok() {
                return Ok(this);
            }
            if Instant::now() >= end {
                let tail = last_lines(&fs::read_to_string(&log).unwrap_or_default(), 20);
                let (server, reason) = ("PostgreSQL".to_owned(), "it does not answer".to_owned());
                return Err(Error::NotHealthy { server, reason, log, tail });
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The folder of its socket: what a client gives as its host, with the user and the database `postgres`.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.folder
    }
}

/// Ends it, and removes what it kept.
impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.flush();
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
