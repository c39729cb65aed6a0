//! Ids of attempts, versions of commits, and days.

mod attempt_id;
mod commit_version;
mod day;
mod source;
mod time_uuid;

pub use attempt_id::{Age, AttemptId, MAX_ATTEMPT};
pub use commit_version::CommitVersion;
pub use day::Day;
pub use source::{IdSource, TooFarAhead};
pub use time_uuid::{ParseIdError, ProcessNumber};
