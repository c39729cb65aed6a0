//! Held locks: guards, heartbeats, and renewal.

pub(crate) mod boottime;
pub(crate) mod guard;
pub(crate) mod heartbeat;
pub(crate) mod renew;
