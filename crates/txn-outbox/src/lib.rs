#![doc = include_str!("../README.md")]
#![warn(clippy::disallowed_methods)]

mod agenda;
mod balance;
mod config;
mod error;
mod event;
mod figures;
mod fresh;
mod handler;
#[cfg(feature = "http-requests")]
pub mod http;
mod inner;
mod lane;
mod model;
mod name;
mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
mod processor;
mod purge;
mod room;
mod running;
mod shard;
mod shards;
mod source;
mod stalls;
mod store_source;
#[cfg(any(feature = "http", feature = "postgres"))]
mod tls;
mod together;
mod topics;

pub use config::{AfterDeath, Assignment, OutboxConfig, ProcessorConfig};
pub use error::{OutboxError, Result};
pub use event::{DeadLetter, DeadLetters, Event};
pub use figures::Figures;
pub use fresh::Fresh;
pub use handler::{Delivery, Failure, Handler};
pub use name::QueueName;
pub use outbox::Outbox;
pub use processor::Processor;
pub use purge::Purged;
pub use shard::Shard;
pub use source::{Backlog, Claim, Discovered, EventSource, Noted, Verdict};
pub use together::EventFn;
pub use topics::Topics;
pub use txn_lock::Heartbeat;
