//! A file system for tests of power losses.
//!
//! Unsynced changes are lost.
//!
//! [`Disk`] keeps all files in memory, and mounts them through `/dev/fuse`, without libfuse. The
//! process must be root; [`check`] says whether the process can mount a disk. Files can be mapped
//! into memory.
//!
//! A disk knows the synced state of each file and each folder, beside the current state. After
//! [`Power::cut`] each call fails. Then the test kills the processes that use the disk, and calls
//! [`Disk::lose`]. The loss keeps all synced data. The seed chooses what else stays:
//!
//! - An unsynced page of a file is lost, kept, or torn between sectors of 512 bytes.
//! - The size of a file is the synced one, the current one, or one between them.
//! - Unsynced changes of folders are lost or kept, in an order that [`Metadata`] allows.
//!
//! ```no_run
//! use txn_lossy_disk::{Disk, Metadata, Power};
//!
//! # fn main() -> std::io::Result<()> {
//! let folder = std::path::Path::new("/mnt/disk");
//! let power = Power::default();
//! let mut disk = Disk::mount(folder, Metadata::Journaled, &power)?;
//! std::fs::write(folder.join("file"), "unsynced")?;
//! power.cut();
//! // Here the test ends all processes with open files.
//! let loss = disk.lose(&mut fastrand::Rng::with_seed(7))?;
//! power.restore();
//! println!("{loss}");
//! # Ok(())
//! # }
//! ```

mod calls;
mod content;
mod disk;
mod loss;
mod power;
mod tree;

pub use disk::{Disk, check};
pub use loss::Loss;
pub use power::Power;
pub use tree::Metadata;
