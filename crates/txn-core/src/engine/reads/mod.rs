//! Reads of committed content, without locks.

pub(crate) mod at_timestamp;
pub(crate) mod decided;
pub(crate) mod observe;

use std::sync::Arc;

use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::history::Histories;
use crate::engine::holders::unlock::Unlocker;
use crate::engine::recovery::Recovery;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use crate::engine::time::Time;

/// Reads of committed content, also of locked documents.
pub(crate) struct Reads {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    table: Arc<Table>,
    unlocker: Arc<Unlocker>,
    recovery: Arc<Recovery>,
    histories: Arc<Histories>,
}

impl Reads {
    pub(in crate::engine) fn new(
        base: &Base,
        unlocker: Arc<Unlocker>,
        recovery: Arc<Recovery>,
        histories: Arc<Histories>,
    ) -> Self {
        let Base { context, store, time, table } = base.clone();
        Self { context, store, time, table, unlocker, recovery, histories }
    }
}
