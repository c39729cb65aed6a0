//! A mounted disk.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use parking_lot::Mutex;

use crate::calls::Calls;
use crate::loss::Loss;
use crate::power::Power;
use crate::tree::{Metadata, Tree};

/// The device of the kernel.
const DEVICE: &str = "/dev/fuse";

/// The number of attempts to unmount. The files of a killed process close after its end.
const ATTEMPTS: u32 = 100;

/// Checks that this process can mount a disk.
///
/// # Errors
/// If it cannot. The message names the reason.
pub fn check() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can mount the disk of power losses".to_owned());
    }
    match fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{DEVICE}: {error}: the kernel has no FUSE")),
    }
}

/// A disk that can lose its power. All files are in memory.
///
/// Dropping the disk unmounts it, and loses all files.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    tree: Arc<Mutex<Tree>>,
    power: Power,
    session: Option<BackgroundSession>,
}

impl Disk {
    /// Mounts an empty disk on a folder.
    ///
    /// The root folder has the owner of `folder`.
    ///
    /// # Errors
    /// If this is impossible; see [`check`].
    pub fn mount(folder: &Path, metadata: Metadata, power: &Power) -> io::Result<Self> {
        let owner = fs::metadata(folder)?;
        let tree = Tree::new(metadata, owner.uid(), owner.gid());
        let mut disk = Self {
            folder: folder.to_owned(),
            tree: Arc::new(Mutex::new(tree)),
            power: power.clone(),
            session: None,
        };
        disk.connect()?;
        Ok(disk)
    }

    /// Returns the folder of the disk.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Loses what was not synced, and mounts the rest again.
    ///
    /// All processes with open files must have ended. The power may be off.
    ///
    /// # Errors
    /// If a process still uses the disk.
    pub fn lose(&mut self, random: &mut Rng) -> io::Result<Loss> {
        // A new mount has no cached pages.
        self.disconnect()?;
        let loss = self.tree.lock().lose(random);
        self.connect()?;
        Ok(loss)
    }

    fn connect(&mut self) -> io::Result<()> {
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.mount_options = vec![
            MountOption::FSName("txn-lossy-disk".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        let calls = Calls::new(self.tree.clone(), self.power.clone());
        self.session = Some(fuser::spawn_mount(calls, &self.folder, &config)?);
        Ok(())
    }

    fn disconnect(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        for _ in 0..ATTEMPTS {
            match rustix::mount::unmount(&self.folder, rustix::mount::UnmountFlags::empty()) {
                Ok(()) => return ended(session.join()),
                Err(rustix::io::Errno::BUSY) => thread::sleep(Duration::from_millis(50)),
                Err(error) => return Err(error.into()),
            }
        }
        self.session = Some(session);
        Err(io::Error::other(format!("{} is still in use", self.folder.display())))
    }
}

/// The end of a session whose disk is unmounted.
///
/// The kernel aborts the connection if a call still ran.
fn ended(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        result => result,
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.disconnect().is_err() {
            // The mount ends with the last process that uses it.
            let _ = rustix::mount::unmount(&self.folder, rustix::mount::UnmountFlags::DETACH);
        }
    }
}
