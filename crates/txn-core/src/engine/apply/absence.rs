//! The proof that a document is absent.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::engine::apply::Applier;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::table::record_lookup::RecordLookup;
use txn_protocol::document::Stored;
use txn_protocol::ids::AttemptId;
use txn_store::{Key, Outcome, Write, WriteOp};

impl Applier {
    /// Proves that a document is absent. Returns whether the proof succeeded.
    ///
    /// The engine creates a placeholder under an aborted tid, and deletes the placeholder. The
    /// store must acknowledge both writes. `incarnation`: the collection of the document; zero for
    /// any collection.
    pub(super) async fn prove_absence(
        self: &Arc<Self>,
        key: &Key,
        incarnation: u64,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let probe_tid = self.probe_tid(deadline).await?;
        let source = Stored::placeholder(probe_tid).encode();
        let created = self.store.write_one(Write::new(key.clone(), WriteOp::Create(source))).await;
        let Outcome::Applied(version) = created else { return Ok(false) };
        let deleted = self.store.write_one(Write::new(key.clone(), WriteOp::Delete(version))).await;
        let is_here = incarnation == 0 || version.incarnation == incarnation;
        Ok(matches!(deleted, Outcome::Applied(_)) && is_here)
    }

    /// Returns a tid of today whose `aborted` record is acknowledged.
    async fn probe_tid(self: &Arc<Self>, deadline: &Deadline) -> Result<AttemptId, AttemptError> {
        let deadline = deadline.clone();
        let applier = self.clone();
        let probe: BoxFuture<'static, _> = Box::pin(async move {
            let mut probe_tid = applier.probe_tid.lock().await;
            let fresh = applier.time.start_id();
            if let Some(tid) = probe_tid.filter(|tid| tid.day() == fresh.day()) {
                return Ok(tid);
            }
            let why = "marks placeholders that only prove an absence";
            applier.verdicts.decide(fresh, RecordLookup::missing(), why, &deadline).await?;
            *probe_tid = Some(fresh);
            Ok(fresh)
        });
        self.context.shared(probe).await?
    }
}
