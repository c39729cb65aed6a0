//! Views of a domain for operators.
//!
//! The command `txn` and the gateway share these views.

pub(crate) mod answers;
mod cluster;
mod contention;
mod findings;
mod message;
mod privileges;
mod status;
mod systems;
mod views;
mod words;

pub(crate) use views::rows_of;

pub use cluster::{Parts, server_findings};
pub use contention::{
    ComparedDocument, ComparedSpan, ComparedWaits, HotDocument, HotList, LabelCount, MOST_MINUTES,
    ProcessCount, Span, WaitSums, compared_waits, hot_documents, most_frequent_labels,
    most_frequent_processes, next_step_of_waits, past_waits,
};
pub use findings::{
    Findings, UNREACHABLE, hanging_json, look, of_faults, of_participant, stall_ms,
};
pub use message::{Message, Severity};
pub use privileges::{RoleBodies, application_role, reader_role};
pub use status::{RequestCounts, Status, causes, status, with_tomorrow};
pub use systems::{
    backlog_json, dead_letter_json, dead_letters_json, locks_json, next_step_of_backlog,
    next_step_of_request, request_json, request_row_json, requests_json,
};
pub use views::{
    ProcessList, TransactionFilter, TransactionList, TransactionRow, WaiterList, document_json,
    has_traces, next_step_of_document, next_step_of_transaction, processes, transaction_json,
    transactions, waiters, waiters_of,
};
pub use words::{duration, labelled, process_of, time_of, visible};
