//! The queues of events, and their documents.

pub(crate) mod event;
pub(crate) mod local_wakeups;
pub(crate) mod model;
pub(crate) mod name;
pub(crate) mod shard;
pub(crate) mod source;
