//! Anomalies, histories and their checks without servers, in one program.
//!
//! Separate programs would each be linked with all dependencies.

mod anomalies_memory;
mod anomalies_redb;
mod checker;
mod histories;
mod judges;
mod sessions;
