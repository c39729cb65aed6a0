//! The janitor task, and the election of the janitor.
//!
//! A single pass per domain and interval is enough, so the processes of a domain elect a janitor.
//! Each elected process rewrites a document in the registry. The election is only a hint: two
//! passes at the same time do no harm.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use crate::engine::admin::janitor::{Janitor, JanitorReport};
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::signals::processes::Processes;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use txn_store::{Outcome, Read, Version, Write, WriteOp};

/// The janitor task of a process.
pub(crate) struct JanitorElection {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    table: Arc<Table>,
    janitor: Arc<Janitor>,
    processes: Arc<Processes>,
}

impl JanitorElection {
    pub(in crate::engine) fn new(
        base: &Base,
        janitor: Arc<Janitor>,
        processes: Arc<Processes>,
    ) -> Self {
        let Base { context, store, table, .. } = base.clone();
        Self { context, store, table, janitor, processes }
    }

    /// Starts the janitor task, if the configuration wants one.
    pub(crate) fn start(self: &Arc<Self>) {
        let Some(interval) = self.context.config.janitor_interval else { return };
        let election_of_task = Arc::downgrade(self);
        let closing = self.context.lifecycle.closing().clone();
        let clock = self.context.config.clock.clone();
        let entropy = self.context.config.entropy.clone();
        self.context.lifecycle.spawn(async move {
            let mut seen = None;
            if let Some(election) = election_of_task.upgrade() {
                seen = election.read_document().await;
                election.processes.renew().await;
            }
            loop {
                // Jitter keeps processes that started together from scanning together.
                let half = u64::try_from(interval.as_micros() / 2).unwrap_or(u64::MAX);
                let wait = interval + Duration::from_micros(entropy.next_u64() % half.max(1));
                tokio::select! {
                    biased;
                    () = closing.cancelled() => return,
                    () = clock.sleep(wait) => {}
                }
                let Some(election) = election_of_task.upgrade() else { return };
                tokio::select! {
                    biased;
                    () = closing.cancelled() => return,
                    ran = AssertUnwindSafe(election.run_if_elected(&mut seen)).catch_unwind() => {
                        if ran.is_err() {
                            tracing::error!("the janitor panicked; the next pass follows after an interval");
                        }
                    }
                }
            }
        });
    }

    /// `seen`: the document at the last read, if there was one.
    async fn run_if_elected(&self, seen: &mut Option<At>) {
        self.processes.renew().await;
        if !self.is_elected(seen).await {
            return;
        }
        if let Err(error) = self.processes.sweep().await {
            tracing::debug!(why = %error.into_error(), "the entries of dead processes stay for now");
        }
        match self.janitor.pass(false, &mut JanitorReport::default()).await {
            Ok(faults) => {
                for (document, what) in &faults.damaged {
                    tracing::warn!(%document, what, "the janitor found damage that an operator must inspect");
                }
                for (place, why) in &faults.unreachable {
                    tracing::warn!(place, why, "the janitor could not read a part of the domain");
                }
            }
            Err(error) => {
                tracing::warn!(why = %error.into_error(), "the janitor could not finish its pass");
            }
        }
    }

    async fn read_document(&self) -> Option<At> {
        let read = self.store.documents().read_primary(&[self.table.janitor_key()]).await;
        match read.into_iter().next() {
            Some(Read::Found { version, .. }) => Some(Some(version)),
            Some(Read::Absent) => Some(None),
            // The next open or audit of the domain reports a lost registry.
            Some(Read::MissingCollection | Read::Unavailable(_)) | None => None,
        }
    }

    /// Whether this process is elected.
    ///
    /// No other process may have been elected since the last read, an interval ago, and the
    /// process's own write must be acknowledged. Only the process's monotonic clock counts. A
    /// process that dies during its pass delays the next pass by an interval.
    async fn is_elected(&self, seen: &mut Option<At>) -> bool {
        let Some(now) = self.read_document().await else { return false };
        if seen.replace(now) != Some(now) {
            return false;
        }
        let key = self.table.janitor_key();
        let by = serde_json::json!({ "by": self.context.config.process_name }).to_string();
        let op = match now {
            Some(version) => WriteOp::Replace(by.into(), version),
            None => WriteOp::Create(by.into()),
        };
        match self.store.write_one(Write::new(key, op)).await {
            Outcome::Applied(version) => {
                *seen = Some(Some(version));
                true
            }
            _ => false,
        }
    }
}

/// The version of the document; `None` before the first election.
type At = Option<Version>;
