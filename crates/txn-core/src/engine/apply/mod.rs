//! The apply: writes of a committed transaction into its documents.

pub(crate) mod finish;
pub(crate) mod moved_locks;
pub(crate) mod participants;
pub(crate) mod recreated;
