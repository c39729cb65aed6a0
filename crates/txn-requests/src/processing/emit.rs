//! The events and HTTP requests of a request.

use txn_core::{Domain, Transaction};
use txn_outbox::http::{HttpRequest, HttpRequests};
use txn_outbox::{Outbox, OutboxError};

use crate::contents::event::Emit;
use crate::error::{RequestError, Result};

/// Refuses an outbox of another domain.
///
/// Events of such an outbox would not commit together with the request.
pub(crate) fn check_domain(outbox: &Outbox, domain: &Domain) -> Result<()> {
    match outbox.domain_name() == domain.name() {
        true => Ok(()),
        false => Err(RequestError::InvalidConfig("the outbox is that of another domain")),
    }
}

/// Emits the events and HTTP requests of a request.
#[derive(Debug)]
pub(crate) struct Emitter {
    outbox: Outbox,
    http: HttpRequests,
}

impl Emitter {
    /// Creates an emitter for requests of at most `max_bytes`.
    pub(crate) fn new(outbox: &Outbox, domain: &Domain, max_bytes: usize) -> Result<Self> {
        check_domain(outbox, domain)?;
        let http = HttpRequests::new(outbox).with_max_bytes(max_bytes);
        Ok(Self { outbox: outbox.clone(), http })
    }

    /// The reason why an event or an HTTP request is impossible.
    pub(crate) fn check(&self, events: &[Emit], calls: &[HttpRequest]) -> Result<(), String> {
        for (at, event) in events.iter().enumerate() {
            let Emit { topic, key, payload } = event;
            if event.has_reserved_topic() {
                return Err(format!("event {at}: the topic {topic} is reserved"));
            }
            let checked = self.outbox.check(topic, key, payload);
            checked.map_err(|error| format!("event {at}: {error}"))?;
        }
        for (at, call) in calls.iter().enumerate() {
            self.http.check(call).map_err(|error| format!("HTTP request {at}: {error}"))?;
        }
        Ok(())
    }

    pub(crate) async fn emit(
        &self,
        tx: &Transaction,
        events: &[Emit],
        calls: &[HttpRequest],
    ) -> Result<(), OutboxError> {
        for Emit { topic, key, payload } in events {
            self.outbox.emit(tx, topic, key, payload).await?;
        }
        for call in calls {
            self.http.after_commit(tx, call).await?;
        }
        Ok(())
    }
}
