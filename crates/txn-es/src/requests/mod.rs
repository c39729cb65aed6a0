//! Requests and answers of documents.

pub(crate) mod bulk;
pub(crate) mod bulk_requests;
pub(crate) mod limits;
pub(crate) mod mget;
pub(crate) mod multi_gets;
pub(crate) mod reads;
pub(crate) mod scan;
pub(crate) mod scans;
#[cfg(test)]
mod tests;
pub(crate) mod writes;
