#![doc = include_str!("../README.md")]

mod access;
mod address;
mod failure;
mod output;
pub mod program;
mod store;

pub use access::{Access, Secret};
pub use address::{Address, AddressParser};
pub use failure::StoreFailure;
pub use output::{Progress, print, print_json, table, time_of, visible, without_logins};
pub use store::OpenStore;
