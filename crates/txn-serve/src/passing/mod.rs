//! Requests for the servers behind the gateway.

pub(crate) mod policy;
pub(crate) mod upstream;
