//! Access to the store: reads, writes that settle, and batched requests.

pub(crate) mod document_target;
pub(crate) mod pages;
pub(crate) mod request_batching;
pub(crate) mod settle;
pub(crate) mod store_access;
