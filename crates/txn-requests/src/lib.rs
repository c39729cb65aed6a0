#![doc = include_str!("../README.md")]
#![warn(clippy::disallowed_methods)]

mod apply;
mod companion;
mod config;
mod control;
pub mod dependent;
mod emit;
mod error;
mod event;
mod handles;
mod inner;
mod model;
mod number;
mod patch;
mod process;
mod processor;
mod recovery;
mod refusal;
mod request;
mod requests;
mod selection;
mod validate;
mod watchers;

pub use companion::Companion;
pub use config::RequestsConfig;
pub use error::{RequestError, Result};
pub use event::Emit;
pub use model::{Reason, State, Status, Times};
pub use processor::{Processor, Tally};
pub use recovery::Stuck;
pub use refusal::{Refusal, Why};
pub use request::{
    Add, Condition, Document, Expect, Field, Merge, Operation, Patch, Put, Request, Target,
};
pub use requests::{Purged, Requests};
pub use selection::Selection;
pub use txn_lock::Heartbeat;
