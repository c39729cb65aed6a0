//! Views of a domain for operators, which the command `txn` and the gateway share.

pub(crate) mod answers;
mod views;

pub use views::{
    ProcessList, TransactionFilter, TransactionList, TransactionRow, document_json,
    next_step_of_document, next_step_of_transaction, processes, transaction_json, transactions,
};
