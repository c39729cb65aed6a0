//! An embedded file as the store of txn-core: transactions without a server.
//!
//! [`RedbStore`] keeps collections and documents in one file of `redb`. One process at a time has
//! the file open. The store syncs a write to the disk before it acknowledges the write. So a killed
//! process loses no acknowledged write.
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
//! - Writes and administration go through one bounded queue to one writer thread. The writer takes
//!   all queued requests, carries them out in one write transaction, commits, and then answers.
//!   Many requests share the cost of one sync.
//! - Reads, scans, and batches with only [`Check`](txn_store::WriteOp::Check) and
//!   [`Verify`](txn_store::WriteOp::Verify) use read transactions. They see one committed state,
//!   and never wait for the writer.
//! - One counter in the file assigns every version and every identity of a collection. The counter
//!   is never reset: versions do not return after a delete, a drop, or a restart. Versions do
//!   return if an older copy replaces the file. So restore a copy only if no later data survives
//!   elsewhere.
//! - After a disk error (a full disk included) the current write is
//!   [`Unknown`](txn_store::Outcome::Unknown) and later writes are
//!   [`Rejected`](txn_store::Outcome::Rejected). Reads continue. Close the store, and open it again
//!   when the disk has space.
//! - A file that was cut off or overwritten is reported as damage at once, without retries. Opening
//!   fails with [`OpenErrorKind::Damaged`], and reads with
//!   [`StoreErrorKind::Damaged`](txn_store::StoreErrorKind::Damaged). Writes that were not made
//!   fail with [`RefusalKind::Damaged`](txn_store::RefusalKind::Damaged). A write whose commit was
//!   under way is [`Unknown`](txn_store::Outcome::Unknown). If redb panics over such a page, the
//!   store catches the panic. A program that prints panics still prints it. The store does not
//!   notice changes that leave the pages valid, such as another digit in a number: check the file
//!   system, and keep copies.
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
pub use redb::StorageBackend;
pub use store::RedbStore;
