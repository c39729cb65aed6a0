//! Administration of a domain: opening, claims, janitor, scan, rebuild, and release.

pub(crate) mod aliases;
pub(crate) mod barrier;
pub(crate) mod claims;
pub(crate) mod integrity;
pub(crate) mod janitor;
pub(crate) mod janitor_election;
pub(crate) mod opening;
pub(crate) mod rebuild;
pub(crate) mod release;
pub(crate) mod scan;
