//! Requests and answers of documents.

pub(crate) mod bulk;
pub(crate) mod documents;
pub(crate) mod mget;
pub(crate) mod reads;
pub(crate) mod scan;
