//! Requests for the servers behind the gateway.

pub(crate) mod destination;
mod owners;
pub(crate) mod paths;
pub(crate) mod policy;
pub(crate) mod upstream;
mod writes;
