//! The queue for a lock, and its grant.

pub(crate) mod attempt;
pub(crate) mod fairness;
pub(crate) mod grant;
pub(crate) mod queue;
