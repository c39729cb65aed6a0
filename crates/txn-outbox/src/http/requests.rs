//! The API for applications: storing requests, and resending dead letters.

use txn_core::Transaction;
use txn_lock::instance::random;

use crate::error::{OutboxError, Result};
use crate::http::request::{HttpRequest, origin};
use crate::http::stored_request::{StoredRequest, TOPIC};
use crate::outbox::Outbox;
use crate::queue::event::DeadLetters;
use crate::queue::name::hash;
use crate::queue::source::EventSource;

/// The number of queues per origin for requests without a key.
///
/// The number bounds the concurrent requests to an origin. With more queues transactions rarely
/// wait for each other.
const SPREAD: u32 = 16;

/// The default of the maximum size of a request as JSON.
const MOST_BYTES: usize = 64 << 10;

/// HTTP requests that are sent after the commit. See [the module](crate::http). Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpRequests {
    outbox: Outbox,
    max_bytes: usize,
}

/// The dead letters to resend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend<'a> {
    /// The dead letter with this event id.
    One(&'a str),
    /// All dead letters.
    All,
}

/// The result of a resend.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Resent {
    /// The ids of the resent dead letters.
    pub ids: Vec<String>,
    /// The ids of the remaining dead letters, each with the reason.
    ///
    /// A reason is, for example, a newer format.
    pub remaining: Vec<(String, OutboxError)>,
}

impl HttpRequests {
    /// Stores requests in an outbox, of at most 64 KiB each.
    #[must_use]
    pub fn new(outbox: &Outbox) -> Self {
        Self { outbox: outbox.clone(), max_bytes: MOST_BYTES }
    }

    /// Sets the maximum size of a request as JSON.
    ///
    /// [`OutboxConfig::max_payload`](crate::OutboxConfig::max_payload) applies, too.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Checks a request in advance, without the state of the outbox.
    ///
    /// # Errors
    /// [`OutboxError::InvalidHttp`], [`OutboxError::InvalidName`].
    pub fn check(&self, request: &HttpRequest) -> Result<()> {
        let url = request.check(self.max_bytes).map_err(OutboxError::InvalidHttp)?;
        let key = request.key.clone().unwrap_or_else(|| spread(&origin(&url), 0));
        // The same size as the stored request.
        self.outbox.check(TOPIC, &key, &StoredRequest::new("0".repeat(32), request))
    }

    /// Stores a request that is sent after the commit. Returns its event id.
    ///
    /// The request is never sent if the transaction aborts. The cost is that of [`Outbox::emit`].
    /// Requests without a key use a few queues per origin, so that transactions rarely wait for
    /// each other. An origin that is down delays no other origin.
    /// [`HttpResults::get`](crate::http::HttpResults::get) returns the result by the event id.
    ///
    /// # Errors
    /// [`OutboxError::InvalidHttp`] if the request can never be sent; otherwise as
    /// [`Outbox::emit`].
    pub async fn after_commit(&self, tx: &Transaction, request: &HttpRequest) -> Result<String> {
        let url = request.check(self.max_bytes).map_err(OutboxError::InvalidHttp)?;
        let id = random(self.outbox.domain());
        let key = request.key.clone().unwrap_or_else(|| spread(&origin(&url), hash(&id)));
        self.outbox.emit(tx, TOPIC, &key, &StoredRequest::new(id, request)).await
    }

    /// Lists the dead letters of HTTP requests.
    ///
    /// # Errors
    /// As [`EventSource::dead_letters`].
    pub async fn dead_letters(&self) -> Result<DeadLetters> {
        let mut dead = self.outbox.dead_letters().await?;
        dead.letters.retain(|letter| letter.event.queue.topic() == TOPIC);
        dead.newer.retain(|id, _| is_ours(id));
        Ok(dead)
    }

    /// Sends dead letters again, with their old `Idempotency-Key`.
    ///
    /// With `dry_run` the call only returns the ids. With [`Resend::All`] a failure of one dead
    /// letter does not stop the rest; [`Resent::remaining`] lists the failures.
    ///
    /// # Errors
    /// With [`Resend::One`], as [`EventSource::retry`]. With [`Resend::All`], errors of the store.
    /// Dead letters before the error are resent, and a repeated call continues with the rest.
    pub async fn resend(&self, which: Resend<'_>, dry_run: bool) -> Result<Resent> {
        let mut resent = Resent::default();
        let ids = match which {
            Resend::One(id) if !is_ours(id) => return Err(OutboxError::NotFound(id.to_owned())),
            Resend::One(id) => vec![id.to_owned()],
            Resend::All => {
                let dead = self.dead_letters().await?;
                for (id, format) in dead.newer {
                    let document = format!("the dead letter {id}");
                    resent.remaining.push((id, OutboxError::NewerFormat { document, format }));
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
                Err(error) if which != Resend::All || error.is_transient_or_unknown() => {
                    return Err(error);
                }
                // Another process has resent or discarded this dead letter in the meantime.
                Err(OutboxError::NotFound(_)) => {}
                Err(error) => resent.remaining.push((id, error)),
            }
        }
        Ok(resent)
    }
}

fn is_ours(id: &str) -> bool {
    id.strip_prefix(TOPIC).is_some_and(|rest| rest.starts_with('/'))
}

/// The key of a request without a key.
fn spread(origin: &str, by: u32) -> String {
    format!("{origin}#{:x}", by % SPREAD)
}
