#![doc = include_str!("../README.md")]
#![warn(clippy::disallowed_methods)]

mod config;
mod contents;
mod control;
pub mod dependent;
mod error;
mod model;
mod operations;
mod processing;
mod requests;
mod running;

pub use config::RequestsConfig;
pub use contents::event::Emit;
pub use contents::refusal::{Refusal, Why};
pub use contents::request::{
    Add, Condition, Document, Expect, Field, Merge, Operation, Patch, Put, Request, Target,
};
pub use contents::selection::Selection;
pub use error::{RequestError, Result};
pub use model::{Reason, State, Status, Times};
pub use operations::{Operations, Prepared};
pub use processing::companion::Companion;
pub use processing::counts::open::OpenCounts;
pub use processing::counts::tally::Tally;
pub use processing::processor::Processor;
pub use processing::recovery::Stuck;
pub use requests::{Purged, Requests};
pub use txn_lock::Heartbeat;
