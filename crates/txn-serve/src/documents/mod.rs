//! Documents in the servers' syntax: bulks, and requests of one document.

pub(crate) mod action;
pub(crate) mod apply;
pub(crate) mod bulk;
pub(crate) mod fingerprint;
pub(crate) mod merge;
pub(crate) mod pairs;
pub(crate) mod single;
