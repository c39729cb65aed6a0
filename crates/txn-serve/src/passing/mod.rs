//! Requests for the servers behind the gateway.

pub(crate) mod destination;
pub(crate) mod names;
mod owners;
pub(crate) mod paths;
pub(crate) mod policy;
pub(crate) mod upstream;
pub(crate) mod writes;
