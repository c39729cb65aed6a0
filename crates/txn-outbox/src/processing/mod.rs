//! The processors of events: which queues they work on, and how.

pub(crate) mod balance;
pub(crate) mod batch_handler;
pub(crate) mod inner;
pub(crate) mod lane;
pub(crate) mod processor;
pub(crate) mod queue_scheduler;
pub(crate) mod running;
pub(crate) mod shards;
pub(crate) mod stalls;
pub(crate) mod topics;
pub(crate) mod work_limit;
