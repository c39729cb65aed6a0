//! Recovery: foreign locks, dead holders, and commits that are rolled forward.

pub(crate) mod failure_detector;
pub(crate) mod holder;
pub(crate) mod lock_resolver;
pub(crate) mod outcome;
pub(crate) mod roll_forward;
