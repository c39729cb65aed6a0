//! The commit of an attempt, and its end without a commit.

pub(crate) mod commit;
pub(crate) mod finish;
pub(crate) mod heartbeat;
pub(crate) mod participants;
pub(crate) mod release;
pub(crate) mod single;
