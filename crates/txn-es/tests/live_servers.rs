//! The tests of the store on servers, in one program.

mod live;
mod live_access;
mod live_blocks;
mod live_collections;
mod live_copies;
mod live_identities;
mod live_routing;
mod live_templates;
mod live_terms;
