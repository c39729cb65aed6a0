//! The apply: writes of a committed transaction into its documents.

mod absence;
mod damage;
pub(crate) mod finish_record;
pub(crate) mod moved_locks;
pub(crate) mod participants;
pub(crate) mod progress;
pub(crate) mod recent_commits;
pub(crate) mod recreated;
pub(crate) mod single_write;
pub(in crate::engine) mod step_write;

use std::sync::Arc;

use crate::engine::apply::recent_commits::RecentCommits;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::holders::failure_detector::FailureDetector;
use crate::engine::holders::verdict::Verdicts;
use crate::engine::hot::Hot;
use crate::engine::live_attempts::LiveAttempts;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use crate::engine::time::Time;
use txn_protocol::ids::AttemptId;

/// Applies committed transactions, round by round.
pub(crate) struct Applier {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    table: Arc<Table>,
    hot: Arc<Hot>,
    recent: Arc<RecentCommits>,
    live_attempts: Arc<LiveAttempts>,
    detector: Arc<FailureDetector>,
    verdicts: Arc<Verdicts>,
    /// An aborted tid for placeholders that only prove an absence.
    probe_tid: tokio::sync::Mutex<Option<AttemptId>>,
}

impl Applier {
    pub(in crate::engine) fn new(
        base: &Base,
        hot: Arc<Hot>,
        recent: Arc<RecentCommits>,
        live_attempts: Arc<LiveAttempts>,
        detector: Arc<FailureDetector>,
        verdicts: Arc<Verdicts>,
    ) -> Self {
        let Base { context, store, time, table } = base.clone();
        Self {
            context,
            store,
            time,
            table,
            hot,
            recent,
            live_attempts,
            detector,
            verdicts,
            probe_tid: tokio::sync::Mutex::default(),
        }
    }
}
