//! The lower parts that every higher part of the engine uses.

use std::sync::Arc;

use crate::engine::context::Context;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use crate::engine::time::Time;

/// The lower parts, for the constructors of higher parts.
#[derive(Clone)]
pub(in crate::engine) struct Base {
    pub(in crate::engine) context: Arc<Context>,
    pub(in crate::engine) store: Arc<StoreAccess>,
    pub(in crate::engine) time: Arc<Time>,
    pub(in crate::engine) table: Arc<Table>,
}
