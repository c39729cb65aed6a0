#![doc = include_str!("../README.md")]

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

pub use audit::{Audit, Finding, Total, Voided};
pub use bank::Bank;
pub use closing::Closed;
pub use derive::Rebuilt;
pub use error::{BankError, Result};
pub use input::{Leg, NewAccount, parse_amount};
pub use listing::AccountPages;
pub use load::{Load, LoadReport, Progress, SubmittedReport, Tally};
pub use model::{Account, Currency, Entry, Kind, Transfer};
pub use owners::{Owner, OwnerTotal, TOPIC as OWNERS};
pub use pending::{Pending, PendingTransfers};
pub use requests::APPLICATION;
pub use rules::check_transfer;
pub use statement::{Period, Statement};
pub use statements::{Line, LineKind};
pub use transfer::{Status, TransferOptions, Transferred};
