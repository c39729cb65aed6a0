//! Views of a domain for operators, which the command `txn` and the gateway share.

pub(crate) mod answers;
mod systems;
mod views;

pub use systems::{
    backlog_json, dead_letter_json, dead_letters_json, locks_json, next_step_of_backlog,
    next_step_of_request, request_json, request_row_json, requests_json,
};
pub use views::{
    ProcessList, TransactionFilter, TransactionList, TransactionRow, document_json,
    next_step_of_document, next_step_of_transaction, processes, transaction_json, transactions,
};
