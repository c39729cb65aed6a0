//! The integration tests of this crate, in one binary.
//!
//! A single binary is linked with the engine only once.
//! `cargo test -p txn-core --test all groups::` runs the tests of one folder or file.

mod admin;
mod commit;
mod costs;
mod groups;
mod locking;
mod reads;
mod recovery;
mod support;
