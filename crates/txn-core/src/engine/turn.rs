//! The janitor task. The processes of a domain take turns: one pass per domain and interval is enough.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use crate::engine::Engine;
use crate::engine::janitor::Report;
use crate::store::{Outcome, Read, Version, Write, WriteOp};

/// Starts the janitor task of a domain, if one is wanted.
pub(crate) fn start(engine: &Arc<Engine>) {
    let Some(interval) = engine.config.janitor_interval else { return };
    let engine_of_task = Arc::downgrade(engine);
    let closing = engine.lifecycle.closing().clone();
    let clock = engine.config.clock.clone();
    let entropy = engine.config.entropy.clone();
    engine.lifecycle.spawn(async move {
        let mut turn = Turn::default();
        if let Some(engine) = engine_of_task.upgrade() {
            turn.seen = Turn::stands(&engine).await;
        }
        loop {
            // Jittered, so that processes that were started together do not look together.
            let half = u64::try_from(interval.as_micros() / 2).unwrap_or(u64::MAX);
            let wait = interval + Duration::from_micros(entropy.next_u64() % half.max(1));
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                () = clock.sleep(wait) => {}
            }
            let Some(engine) = engine_of_task.upgrade() else { return };
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                turned = AssertUnwindSafe(take_turn(&engine, &mut turn)).catch_unwind() => {
                    if turned.is_err() {
                        tracing::error!("the janitor panicked; it looks again in its next turn");
                    }
                }
            }
        }
    });
}

async fn take_turn(engine: &Engine, turn: &mut Turn) {
    if !turn.take(engine).await {
        return;
    }
    match engine.pass(false, &mut Report::default()).await {
        Ok(faults) => {
            for (document, what) in &faults.damaged {
                tracing::warn!(%document, what, "the janitor found something for a person to look at");
            }
            for (place, why) in &faults.unreachable {
                tracing::warn!(place, why, "the janitor could not look at it");
            }
        }
        Err(error) => {
            tracing::warn!(why = %error.into_error(), "the janitor could not finish its pass");
        }
    }
}

/// Whose turn it is: a document in the registry that is rewritten with each turn. A hint only, for two passes at a
/// time do no harm.
#[derive(Debug, Default)]
struct Turn {
    /// Where it stood at the last look, if there was one.
    seen: Option<At>,
}

/// Where the document stands; `None` as long as nobody took a turn.
type At = Option<Version>;

impl Turn {
    async fn stands(engine: &Engine) -> Option<At> {
        let read = engine.store.read_primary(&[engine.table.janitor_key()]).await;
        match read.into_iter().next() {
            Some(Read::Found { version, .. }) => Some(Some(version)),
            Some(Read::Absent) => Some(None),
            // A lost registry is told by whoever opens the domain or audits it.
            Some(Read::MissingCollection | Read::Unavailable(_)) | None => None,
        }
    }

    /// Whether it is this process's turn: nobody took one since the last look, an interval ago, and ours is
    /// acknowledged. Only this process's own monotonic clock counts; a process that dies in its turn delays the next
    /// by an interval.
    async fn take(&mut self, engine: &Engine) -> bool {
        let Some(stands) = Self::stands(engine).await else { return false };
        if self.seen.replace(stands) != Some(stands) {
            return false;
        }
        let key = engine.table.janitor_key();
        let by = serde_json::json!({ "by": engine.config.coordinator }).to_string();
        let op = match stands {
            Some(version) => WriteOp::Replace(by.into(), version),
            None => WriteOp::Create(by.into()),
        };
        match engine.write_one(Write::new(key, op)).await {
            Outcome::Applied(version) => {
                self.seen = Some(Some(version));
                true
            }
            _ => false,
        }
    }
}
