//! The products that can be started, and their files.

pub(crate) mod elasticsearch;
pub(crate) mod kind;
pub(crate) mod opensearch;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod product;
pub(crate) mod roles;
pub(crate) mod tls;
