#![doc = include_str!("../README.md")]
#![warn(clippy::disallowed_methods)]

mod config;
mod error;
mod figures;
mod handler;
#[cfg(feature = "http-requests")]
pub mod http;
mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
mod processing;
mod purge;
mod queue;
#[cfg(any(feature = "http", feature = "postgres"))]
mod tls;

pub use config::{AfterDeadLetter, Assignment, OutboxConfig, ProcessorConfig};
pub use error::{OutboxError, Result};
pub use figures::Figures;
pub use handler::{Delivery, Failure, Handler};
pub use outbox::Outbox;
pub use processing::batch_handler::EventFn;
pub use processing::processor::Processor;
pub use processing::topics::Topics;
pub use purge::Purged;
pub use queue::event::{DeadLetter, DeadLetters, Event};
pub use queue::local_wakeups::LocalWakeups;
pub use queue::name::QueueName;
pub use queue::shard::Shard;
pub use queue::source::{Backlog, Claim, Discovered, EventSource, FailureEffect, RecordedFailure};
pub use txn_lock::Heartbeat;
