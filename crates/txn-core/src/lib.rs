//! Multi-document transactions on any document store with conditional writes.
//!
//! A [`Domain`] is one name space of transactions over collections of a [`Store`](store::Store).
//! [`Domain::transact`] runs a closure over any number of documents as an atomic, isolated and
//! recoverable transaction. The protocol is two-phase locking with wound-wait, and needs no service
//! besides the store.
//!
//! ```
//! use std::sync::Arc;
//! use txn_core::store::MemoryStore;
//! use txn_core::{Config, Domain, Error, Typed};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let domain =
//!     Domain::open_or_create(Arc::new(MemoryStore::new()), "shop", Config::default()).await?;
//! let stock = domain.create_collection::<Typed<i64Doc>>("stock", None).await?;
//! # #[derive(serde::Serialize, serde::Deserialize, Default)] #[allow(non_camel_case_types)] struct i64Doc { left: i64 }
//! domain
//!     .transact(async |tx| {
//!         let mut shelf = tx.get(&stock, "shelf").await?.unwrap_or_default();
//!         let mut cart = tx.get(&stock, "cart").await?.unwrap_or_default();
//!         shelf.left -= 1;
//!         cart.left += 1;
//!         tx.put(&stock, "shelf", &shelf)?;
//!         tx.put(&stock, "cart", &cart)
//!     })
//!     .await?;
//! # domain.shutdown(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```

#![warn(clippy::disallowed_methods)]

mod api;
mod attempt;
pub mod clock;
mod config;
mod engine;
mod error;
pub mod event;
mod group;
mod sync;

pub use api::admin::Admin;
pub use api::collection::{Codec, Collection, DecodeError, DocumentId, Raw, Typed};
pub use api::domain::idempotent::{Answer, Answered, IdempotencyKey, PurgedAnswers};
pub use api::domain::load::Load;
pub use api::domain::{Committed, Domain, TransactionFn};
pub use api::history::{History, SnapshotReader};
pub use api::reader::{CompareAndSet, Reader, Versioned};
pub use api::transaction::Transaction;
pub use attempt::Receipt;
pub use config::{Config, LockMode, Options, ReadMode, WaitFor};
pub use engine::admin::barrier::{BarrierReport, UnappliedWrite};
pub use engine::admin::janitor::JanitorReport;
pub use engine::admin::rebuild::RebuildReport;
pub use engine::holders::transaction_outcome::TransactionOutcome;
pub use engine::signals::contention::{LockWait, PresentWait};
pub use engine::signals::process_entry::ProcessEntry;
pub use error::{Error, ErrorKind, Result};
#[doc(inline)]
pub use txn_protocol::ids::{AttemptId, CommitVersion, ProcessNumber};
#[doc(inline)]
pub use txn_store as store;

/// Parts of ids, and errors of their parsers.
pub mod ids {
    #[doc(inline)]
    pub use txn_protocol::ids::{Age, Day, ParseIdError};
}

/// The text of a document, and errors of its parser.
pub mod json {
    #[doc(inline)]
    pub use txn_protocol::document::{Image, JsonError};
}

/// The answers of [`Admin`], for operators' programs.
pub mod admin {
    pub use crate::api::admin::report::{
        AbortReport, CommitCheck, CommitReport, DocumentLock, DocumentName, DocumentReport, Fault,
        LockStanding, LockedDocuments, LossKind, LostCommit, OpenTransaction, OpenTransactions,
        Overview, ParticipantReport, ParticipantState, PartitionName, RecordReport,
        TransactionReport, TransactionState, Verdict,
    };
    pub use crate::api::admin::signals::{Contention, ProcessReport, WaitSource, Waiter, Waiters};
}

#[doc(inline)]
pub use api::candidates as scan;

/// The state of a transaction record, for operators' programs.
pub mod record {
    #[doc(inline)]
    pub use txn_protocol::record::{Aborted, Op, State};
}
