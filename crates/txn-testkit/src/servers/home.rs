//! The folder with downloads, data, logs, and the state of running servers.

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::error::{Error, OnPath, Result};
use crate::servers::launching::account::Account;

/// The variable that overrides the folder.
pub(crate) const HOME_VARIABLE: &str = "TXN_SERVERS_HOME";

/// The variable that overrides the folder of the servers' data. The folder has one folder per
/// server, and may be in memory.
const DATA_VARIABLE: &str = "TXN_SERVERS_DATA";

/// The folder if the servers' account cannot enter the default one.
///
/// Root's home is an example.
const SHARED: &str = "/var/cache/txn-servers";

/// The folder, and the account that servers run under.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    root: PathBuf,
    /// The folder with one folder per server.
    servers: PathBuf,
    account: Option<Account>,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file gives the lock back")] File);

impl Home {
    /// Opens the folder, or creates it.
    pub(crate) fn open() -> Result<Self> {
        let is_root = geteuid().is_root();
        let root = choose(is_root)?;
        create(&root)?;
        let servers = named(DATA_VARIABLE)?.unwrap_or_else(|| root.join("run"));
        let home = Self { root, servers, account: None };
        if !is_root {
            return Ok(home);
        }
        for (variable, folder) in [(HOME_VARIABLE, &home.root), (DATA_VARIABLE, &home.servers)] {
            if !is_reachable(folder) {
                return Err(Error::Other(format!(
                    "servers run as the unprivileged user `{}`, who cannot enter {}: set \
                     {variable} to a folder whose parents everybody may enter",
                    Account::NAME,
                    folder.display(),
                )));
            }
        }
        let _lock = home.lock("account")?;
        Ok(Self { account: Some(Account::ensure()?), ..home })
    }

    /// Returns the servers' account, if it is not the caller's.
    pub(crate) fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// Returns the folder of unpacked products.
    pub(crate) fn products(&self) -> PathBuf {
        self.root.join("products")
    }

    /// Returns the folder with one folder per server.
    pub(crate) fn servers(&self) -> PathBuf {
        self.servers.clone()
    }

    /// Waits for the lock with this name.
    pub(crate) fn lock(&self, name: &str) -> Result<Lock> {
        let folder = self.root.join("locks");
        create(&folder)?;
        let path = folder.join(name);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .on("open", &path)?;
        file.lock().on("lock", &path)?;
        Ok(Lock(file))
    }

    /// Gives a folder, and everything in it, to the servers' account.
    pub(crate) fn give(&self, path: &Path) -> Result<()> {
        match &self.account {
            Some(account) => account.own(path),
            None => Ok(()),
        }
    }
}

fn choose(is_root: bool) -> Result<PathBuf> {
    if let Some(folder) = named(HOME_VARIABLE)? {
        return Ok(folder);
    }
    let usual = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| env::home_dir().map(|home| home.join(".cache")))
        .map(|cache| cache.join("txn-servers"));
    match usual {
        Some(folder) if !is_root || is_reachable(&folder) => Ok(folder),
        _ if is_root => Ok(SHARED.into()),
        _ => Err(Error::Other(format!("there is no home folder: set {HOME_VARIABLE}"))),
    }
}

/// Returns the folder that a variable names.
fn named(variable: &str) -> Result<Option<PathBuf>> {
    let folder = env::var_os(variable).filter(|folder| !folder.is_empty());
    folder.map(|folder| std::path::absolute(&folder).on("find", Path::new(&folder))).transpose()
}

/// Whether any user may enter this folder, or could after its creation.
pub(crate) fn is_reachable(path: &Path) -> bool {
    let real = path.canonicalize();
    real.as_deref().unwrap_or(path).ancestors().all(|folder| match fs::metadata(folder) {
        Ok(metadata) => metadata.permissions().mode() & 0o001 != 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    })
}

/// Creates a folder that every user may enter.
pub(crate) fn create(path: &Path) -> Result<()> {
    if !path.is_dir() {
        fs::create_dir_all(path).on("create", path)?;
        fs::set_permissions(path, Permissions::from_mode(0o755)).on("open up", path)?;
    }
    Ok(())
}

/// Writes a file for its owner only, atomically.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, "").on("write", &draft)?;
    fs::set_permissions(&draft, Permissions::from_mode(0o600)).on("protect", &draft)?;
    fs::write(&draft, text).on("write", &draft)?;
    fs::rename(&draft, path).on("write", path)
}

/// Removes a folder, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).on("remove", path),
        _ => Ok(()),
    }
}
