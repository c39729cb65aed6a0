//! The commit of an attempt, and its end without a commit.

pub(in crate::attempt) mod commit;
mod commit_outcome;
mod commit_steps;
mod finish;
pub(in crate::attempt) mod participants;
mod record;
pub(crate) mod release;
mod single;
