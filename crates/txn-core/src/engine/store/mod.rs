//! Access to the store: reads, writes that settle, and batched requests.

pub(crate) mod observe;
pub(crate) mod pages;
pub(crate) mod request_batching;
pub(crate) mod settle;
pub(crate) mod settle_targets;
pub(crate) mod single_write;
pub(crate) mod store_access;
pub(crate) mod unlock;
