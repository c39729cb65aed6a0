//! The transaction table: records, day partitions, and the domain document.

pub(crate) mod domain_document;
pub(crate) mod format;
mod known_days;
pub(crate) mod own_record;
pub(crate) mod partitions;
pub(crate) mod record_lookup;
pub(crate) mod records;
pub(crate) mod retention;

use std::sync::Arc;

use crate::engine::context::Context;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::time::Time;
use known_days::KnownDays;
use txn_protocol::ids::{AttemptId, Day};
use txn_store::{Key, Write, WriteOp};

/// The collection of domain documents and claims, shared by all domains.
pub(crate) const REGISTRY: &str = "txn-registry";

/// The transaction table of a domain.
pub(crate) struct Table {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    domain: Arc<str>,
    days: KnownDays,
    /// Allows one task at a time to create partitions.
    making: tokio::sync::Mutex<()>,
}

impl Table {
    pub(crate) fn new(
        context: Arc<Context>,
        store: Arc<StoreAccess>,
        time: Arc<Time>,
        domain: &str,
    ) -> Self {
        let (days, making) = Default::default();
        Self { context, store, time, domain: domain.into(), days, making }
    }

    pub(crate) fn domain(&self) -> &Arc<str> {
        &self.domain
    }

    /// The name of a collection of this domain.
    ///
    /// Dashes become dots, which no domain name contains. So the names of `shop-eu` do not begin
    /// with `shop-`, and privileges on the prefix of one domain reach no other domain.
    pub(crate) fn collection_name(&self, of: &str) -> String {
        format!("{}-{of}", self.domain.replace('-', "."))
    }

    /// The prefix of partition names and their aliases.
    pub(crate) fn prefix(&self) -> String {
        format!("txn-{}", self.collection_name(""))
    }

    /// The alias of a day's partition.
    pub(crate) fn alias(&self, day: Day) -> String {
        format!("{}{day}", self.prefix())
    }

    /// The key of an attempt's record.
    pub(crate) fn record_key(&self, tid: AttemptId) -> Key {
        Key::new(self.alias(tid.day()), tid.to_string())
    }

    /// Whether a document is a record of the domain.
    pub(crate) fn has_record(&self, key: &Key) -> bool {
        key.collection.starts_with(&self.prefix())
    }

    pub(crate) fn domain_key(&self) -> Key {
        Key::new(REGISTRY, format!("domain:{}", self.domain))
    }

    /// The key of the document that elects the janitor.
    pub(crate) fn janitor_key(&self) -> Key {
        Key::new(REGISTRY, format!("janitor:{}", self.domain))
    }

    /// The key of a process's entry in the registry of processes.
    pub(crate) fn process_key(&self, node: &str) -> Key {
        Key::new(REGISTRY, format!("process:{}:{node}", self.domain))
    }

    /// The key of the last waits of a process.
    pub(crate) fn contention_key(&self, node: &str) -> Key {
        Key::new(REGISTRY, format!("contention:{}:{node}", self.domain))
    }

    pub(crate) fn record_write(&self, tid: AttemptId, op: WriteOp) -> Write {
        Write { key: self.record_key(tid), require_alias: true, op }
    }

    /// The key of a slot of the board.
    pub(crate) fn slot_key(&self, number: usize) -> Key {
        Key::new(REGISTRY, format!("board:{}:{number}", self.domain))
    }
}
