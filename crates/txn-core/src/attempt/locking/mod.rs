//! Locks and validation of an attempt.

pub(crate) mod hot_locks;
pub(crate) mod lock;
pub(crate) mod lock_request;
pub(crate) mod validate;
pub(crate) mod waiting;
