//! The transaction table: records, day partitions, and the domain document.

pub(crate) mod domain_document;
pub(crate) mod format;
pub(crate) mod in_doubt;
pub(crate) mod own_record;
pub(crate) mod retention;
pub(crate) mod transaction_table;
