//! Requests and answers of documents.

pub(crate) mod answers;
pub(crate) mod bulk;
pub(crate) mod classify;
pub(crate) mod documents;
pub(crate) mod mget;
pub(crate) mod reads;
pub(crate) mod reason;
pub(crate) mod scan;
