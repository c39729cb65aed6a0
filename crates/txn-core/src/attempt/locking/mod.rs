//! Locks and validation of an attempt.

mod hot_locks;
pub(in crate::attempt) mod lock;
mod lock_request;
mod phase;
mod send;
mod steps;
pub(in crate::attempt) mod validate;
pub(in crate::attempt) mod verify;
pub(in crate::attempt) mod waiting;
