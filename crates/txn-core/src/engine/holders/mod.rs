//! Lock holders: failure detector, verdicts, and removal of void locks.

pub(crate) mod failure_detector;
pub(crate) mod foreign_lock;
pub(crate) mod outcome;
pub(crate) mod transaction_outcome;
pub(crate) mod unlock;
pub(crate) mod verdict;
