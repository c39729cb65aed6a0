#![doc = include_str!("../README.md")]

mod audit;
mod bank;
mod collections;
mod error;
mod input;
mod load;
mod model;
mod owning;
mod statement_lines;
mod transfers;

pub use audit::{Audit, Finding, Total, Voided};
pub use bank::Bank;
pub use error::{BankError, Result};
pub use input::{Leg, NewAccount, parse_amount};
pub use load::{Load, LoadReport, Progress, SubmittedReport, Tally};
pub use model::{Account, Currency, Entry, Kind, Transfer};
pub use owning::listing::AccountPages;
pub use owning::owners::{Owner, OwnerTotal, TOPIC as OWNERS};
pub use owning::rebuild::Rebuilt;
pub use statement_lines::statement::{Period, Statement};
pub use statement_lines::statements::{Line, LineKind};
pub use transfers::closing::Closed;
pub use transfers::pending::{Pending, PendingTransfers};
pub use transfers::requests::APPLICATION;
pub use transfers::rules::check_transfer;
pub use transfers::transfer::{Status, TransferOptions, Transferred};
