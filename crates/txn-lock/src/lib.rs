#![doc = include_str!("../README.md")]
#![warn(clippy::disallowed_methods)]

mod attempt;
pub mod backoff;
mod boottime;
mod config;
mod error;
pub mod exact;
mod fairness;
mod grant;
mod guard;
mod heartbeat;
mod inner;
pub mod instance;
mod model;
pub mod name;
mod queue;
mod renew;
mod repository;
pub mod scan;
mod service;
pub mod stored;

pub use config::LockConfig;
pub use error::{LockError, Loss, Result, Timeout};
pub use guard::{Fenced, Guard, Held};
pub use heartbeat::Heartbeat;
pub use model::{Holder, Lock, LockName, Waiter};
pub use repository::{Created, Known, LockRepository};
pub use service::LockService;
