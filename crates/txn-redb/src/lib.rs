//! One embedded file as the store of txn-core: durable transactions without a server.
//!
//! [`RedbStore`] keeps collections and documents in one file by `redb`, which one process has open
//! at a time. An acknowledged write has been synced to the disk; a process that is killed loses none.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("bank.redb");
//! use std::sync::Arc;
//! use txn_store::Store;
//! use txn_redb::RedbStore;
//!
//! let store: Arc<dyn Store> = Arc::new(RedbStore::open(&path)?);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//! - Writes and administration go through one bounded queue to one writer thread. It takes all
//!   that is queued, carries it out in one write transaction of the file, commits, and only then
//!   answers: many writers share the cost of one sync.
//! - Reads, scans, and batches of nothing but [`Check`](txn_store::WriteOp::Check) and
//!   [`Verify`](txn_store::WriteOp::Verify) use read transactions: they see what is
//!   committed, all of it at one moment, and never wait for the writer.
//! - One counter in the file gives every version and every identity of a collection. It is never
//!   reset: versions do not return after a delete, a drop, or a restart. They do return if the file
//!   is replaced by an older copy of itself: restore a copy only where nothing of what was written
//!   after it lives on elsewhere.
//! - After an error of the disk, a full one included, the write under way is
//!   [`Unknown`](txn_store::Outcome::Unknown) and later ones are
//!   [`Rejected`](txn_store::Outcome::Rejected), while reads go on: close the store and open
//!   it again when there is room.
//! - A file that was cut off or overwritten is told as damage, at once, and is not asked again:
//!   [`OpenErrorKind::Damaged`], [`StoreErrorKind::Damaged`](txn_store::StoreErrorKind::Damaged) of reads,
//!   [`RefusalKind::Damaged`](txn_store::RefusalKind::Damaged) of writes that were not made, and
//!   [`Unknown`](txn_store::Outcome::Unknown) where the commit was under way. Where redb panics over such a
//!   page the panic is caught; a program that prints panics prints it. Changes that leave the pages sound, such
//!   as another digit in a number, are not noticed: check the file system, and keep copies.
//! - Futures need a tokio runtime whose clock runs: a paused clock jumps to the timeout while the
//!   writer thread syncs.

mod apply;
mod codec;
mod config;
mod error;
mod file;
mod read;
mod store;
mod view;
mod writer;

pub use config::RedbConfig;
pub use error::{OpenError, OpenErrorKind};
pub use store::RedbStore;
