//! Account transfers over any number of accounts: library and command.
//!
//! A [`Bank`] is a client of the transaction engine and nothing else: accounts and transfers are
//! documents of two collections of one domain, every change of them is a transaction. Money never
//! appears or vanishes, whatever crashes: [`Bank::audit`] checks that.
//!
//! ```
//! use std::sync::Arc;
//! use txn_bank::{Bank, Leg, NewAccount};
//! use txn_core::Config;
//! use txn_core::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), txn_bank::BankError> {
//! let bank = Bank::create(Arc::new(MemoryStore::new()), "bank", Config::default()).await?;
//! bank.open_account(&NewAccount::new("alice", "Alice", 100, "EUR")?).await?;
//! bank.open_account(&NewAccount::new("bob", "Bob", 0, "EUR")?).await?;
//! bank.transfer(Some("rent-may"), &[Leg::new("alice", -30), Leg::new("bob", 30)]).await?;
//! assert_eq!(bank.accounts(&["alice", "bob"]).await?[1].balance, 30);
//! assert!(bank.audit(true).await?.is_clean());
//! # bank.shutdown(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```

mod audit;
mod bank;
mod closing;
mod collections;
mod companion;
mod derive;
mod error;
mod input;
mod listing;
mod load;
mod model;
mod owners;
mod pending;
mod requests;
mod rules;
mod statement;
mod statements;
mod transfer;

pub use audit::{Audit, Finding, Total};
pub use bank::Bank;
pub use closing::Closed;
pub use derive::Rebuilt;
pub use error::{BankError, Result};
pub use input::{Leg, NewAccount, parse_amount};
pub use listing::AccountPages;
pub use load::{Load, LoadReport, Progress, SubmittedReport, Tally};
pub use model::{Account, Currency, Entry, Kind, Transfer};
pub use owners::{Owner, OwnerTotal};
pub use pending::{Pending, PendingTransfers};
pub use requests::APPLICATION;
pub use rules::check_transfer;
pub use statement::{Period, Statement};
pub use statements::{Line, LineKind};
pub use transfer::{Status, TransferOptions, Transferred};
