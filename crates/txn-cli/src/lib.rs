#![doc = include_str!("../README.md")]

mod access;
mod address;
mod failure;
pub mod program;
mod redact;
mod store;
mod text;

pub use access::{Access, Secret};
pub use address::{Address, AddressParser};
pub use failure::StoreFailure;
pub use redact::without_logins;
pub use store::OpenStore;
pub use text::{print, print_json, table, time_of, visible};
