//! Administration of a domain: opening, claims, janitor, scan, rebuild, and release.

pub(crate) mod aliases;
pub(crate) mod barrier;
pub(crate) mod collections;
mod enable_history;
pub(crate) mod integrity;
pub(crate) mod janitor;
pub(crate) mod janitor_election;
pub(crate) mod opening;
pub(crate) mod rebuild;
pub(crate) mod release;
pub(crate) mod scan;

use std::sync::Arc;

use crate::engine::admin::collections::Collections;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::history::Histories;
use crate::engine::signals::processes::Processes;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use crate::engine::time::Time;

/// Opens, checks, rebuilds and removes a domain.
pub(crate) struct DomainAdmin {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    table: Arc<Table>,
    histories: Arc<Histories>,
    collections: Arc<Collections>,
    processes: Arc<Processes>,
}

impl DomainAdmin {
    pub(in crate::engine) fn new(
        base: &Base,
        histories: Arc<Histories>,
        collections: Arc<Collections>,
        processes: Arc<Processes>,
    ) -> Self {
        let Base { context, store, time, table } = base.clone();
        Self { context, store, time, table, histories, collections, processes }
    }
}
