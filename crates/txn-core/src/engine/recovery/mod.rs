//! Recovery: foreign locks are resolved, and commits are rolled forward.

pub(crate) mod lock_resolver;
pub(crate) mod roll_forward;

use std::sync::Arc;

use crate::engine::apply::Applier;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::holders::unlock::Unlocker;
use crate::engine::holders::verdict::Verdicts;
use crate::engine::table::Table;
use txn_protocol::ids::AttemptId;

/// Resolves the locks of other transactions, and applies commits.
pub(crate) struct Recovery {
    context: Arc<Context>,
    table: Arc<Table>,
    verdicts: Arc<Verdicts>,
    unlocker: Arc<Unlocker>,
    applier: Arc<Applier>,
}

impl Recovery {
    pub(in crate::engine) fn new(
        base: &Base,
        verdicts: Arc<Verdicts>,
        unlocker: Arc<Unlocker>,
        applier: Arc<Applier>,
    ) -> Self {
        let Base { context, table, .. } = base.clone();
        Self { context, table, verdicts, unlocker, applier }
    }

    /// The label of an attempt, if this process knows it.
    pub(crate) fn label_of(&self, tid: AttemptId) -> Option<Arc<str>> {
        self.verdicts.label_of(tid)
    }
}
