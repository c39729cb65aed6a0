//! The commit of an attempt, and its end without a commit.

mod after_commit;
pub(in crate::attempt) mod commit;
mod commit_outcome;
mod commit_steps;
pub(in crate::attempt) mod participants;
mod record;
pub(crate) mod rollback;
mod single;
