#![doc = include_str!("../README.md")]
#![warn(clippy::disallowed_methods)]

pub mod backoff;
mod config;
mod error;
pub mod exact;
mod granting;
mod holding;
mod inner;
pub mod instance;
mod lease;
pub mod name;
mod records;
mod service;
pub mod stored;

pub use config::LockConfig;
pub use error::{LockError, Loss, Result, Timeout};
pub use holding::guard::{Fenced, Guard, Held};
pub use holding::heartbeat::Heartbeat;
pub use lease::{Lease, LeaseRequest, Leases};
pub use records::model::{Holder, Lock, LockName, Waiter};
pub use records::repository::{Created, Known, LockRepository};
pub use service::LockService;
