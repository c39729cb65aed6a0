//! What an application calls: requests are kept with a transaction, and sent again when they died.

use serde_json::json;
use txn_core::Transaction;

use crate::error::{OutboxError, Result};
use crate::event::DeadLetters;
use crate::http::kept::{Kept, TOPIC};
use crate::http::request::{HttpRequest, origin};
use crate::name::hash;
use crate::outbox::Outbox;
use crate::source::EventSource;

/// How many queues the requests to one place are spread over that have no key: as many may be under way to it, and a
/// transaction seldom waits for another.
const SPREAD: u32 = 16;

/// Most bytes of a request as JSON, unless something else is set.
const MOST_BYTES: usize = 64 << 10;

/// HTTP requests that are performed after the commit: see [the module](crate::http). Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpRequests {
    outbox: Outbox,
    max_bytes: usize,
}

/// Which dead letters are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend<'a> {
    /// This one.
    One(&'a str),
    /// All that there are.
    All,
}

/// What became of dead letters that were to be sent again.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Resent {
    /// The ids of those that are.
    pub ids: Vec<String>,
    /// The ids of those that are not, and why: their format is newer, for instance.
    pub left: Vec<(String, OutboxError)>,
}

impl HttpRequests {
    /// Requests that are kept in an outbox, of at most 64 KiB each.
    #[must_use]
    pub fn new(outbox: &Outbox) -> Self {
        Self { outbox: outbox.clone(), max_bytes: MOST_BYTES }
    }

    /// Sets how many bytes a request may have as JSON; [`OutboxConfig::max_payload`](crate::OutboxConfig::max_payload) holds, too.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Checks what [`HttpRequests::after_commit`] would refuse, however full the outbox is.
    ///
    /// # Errors
    /// [`OutboxError::InvalidHttp`], [`OutboxError::InvalidName`].
    pub fn check(&self, request: &HttpRequest) -> Result<()> {
        let url = request.check(self.max_bytes).map_err(OutboxError::InvalidHttp)?;
        let key = request.key.clone().unwrap_or_else(|| spread(&origin(&url), 0));
        // As large as what is kept.
        let kept = json!({"format": 1, "tid": "0".repeat(36), "request": request});
        self.outbox.check(TOPIC, &key, &kept)
    }

    /// Keeps a request: it is performed after the transaction commits, and never if it does not. Costs what
    /// [`Outbox::emit`] costs. Requests without a key are spread over a few queues for each place that they go to, so that
    /// transactions seldom wait for each other, and a place that is down holds up no other.
    ///
    /// Returns the event's id, by which the result is found.
    ///
    /// # Errors
    /// [`OutboxError::InvalidHttp`] if it can never be sent; otherwise as [`Outbox::emit`].
    pub async fn after_commit(&self, tx: &Transaction, request: &HttpRequest) -> Result<String> {
        let url = request.check(self.max_bytes).map_err(OutboxError::InvalidHttp)?;
        let tid = tx.tid();
        let by_itself = || spread(&origin(&url), hash(&tid.to_string()));
        let key = request.key.clone().unwrap_or_else(by_itself);
        self.outbox.emit(tx, TOPIC, &key, &Kept::new(tid, request)).await
    }

    /// The requests that were set aside.
    ///
    /// # Errors
    /// As [`EventSource::dead_letters`].
    pub async fn dead_letters(&self) -> Result<DeadLetters> {
        let mut dead = self.outbox.dead_letters().await?;
        dead.letters.retain(|letter| letter.event.queue.topic() == TOPIC);
        dead.newer.retain(|id, _| is_ours(id));
        Ok(dead)
    }

    /// Lets requests that were set aside be performed again, with the `Idempotency-Key` that they had. `dry_run` says which
    /// they would be, and does nothing. Of all, what keeps one from being sent keeps no other: it is told in [`Resent::left`].
    ///
    /// # Errors
    /// Of one, as [`EventSource::retry`]. Of all, those that speak of the store: those before are sent again, and the same
    /// call goes on with the others.
    pub async fn resend(&self, which: Resend<'_>, dry_run: bool) -> Result<Resent> {
        let mut resent = Resent::default();
        let ids = match which {
            Resend::One(id) if !is_ours(id) => return Err(OutboxError::NotFound(id.to_owned())),
            Resend::One(id) => vec![id.to_owned()],
            Resend::All => {
                let dead = self.dead_letters().await?;
                for (id, format) in dead.newer {
                    let document = format!("the dead letter {id}");
                    resent.left.push((id, OutboxError::NewerFormat { document, format }));
                }
                dead.letters.into_iter().map(|letter| letter.event.id).collect()
            }
        };
        for id in ids {
            let sent = match dry_run {
                true => self.outbox.dead_letter(&id).await.map(drop),
                false => self.outbox.retry(&id).await,
            };
            match sent {
                Ok(()) => resent.ids.push(id),
                Err(error) if which != Resend::All || error.passes() => return Err(error),
                // Somebody else sent it, or dropped it, meanwhile.
                Err(OutboxError::NotFound(_)) => {}
                Err(error) => resent.left.push((id, error)),
            }
        }
        Ok(resent)
    }
}

fn is_ours(id: &str) -> bool {
    id.strip_prefix(TOPIC).is_some_and(|rest| rest.starts_with('/'))
}

/// The key of a request that has none.
fn spread(origin: &str, by: u32) -> String {
    format!("{origin}#{:x}", by % SPREAD)
}
