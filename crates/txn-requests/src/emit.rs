//! What a request leaves in an outbox: events, and HTTP requests that follow the commit.

use txn_core::{Domain, Transaction};
use txn_outbox::http::{self, HttpRequest, HttpRequests};
use txn_outbox::{Outbox, OutboxError};

use crate::error::{RequestError, Result};
use crate::event::Emit;

/// The topic of updates that depend on a write.
pub(crate) const UPDATES: &str = "dependent-updates";

/// Refuses an outbox whose events would not commit with what is written here.
pub(crate) fn check_domain(outbox: &Outbox, domain: &Domain) -> Result<()> {
    match outbox.domain_name() == domain.name() {
        true => Ok(()),
        false => Err(RequestError::InvalidConfig("the outbox is that of another domain")),
    }
}

/// Emits what requests leave in an outbox.
#[derive(Debug)]
pub(crate) struct Emitter {
    outbox: Outbox,
    http: HttpRequests,
}

impl Emitter {
    /// For requests of a domain, of so many bytes at most.
    pub(crate) fn new(outbox: &Outbox, domain: &Domain, max_bytes: usize) -> Result<Self> {
        check_domain(outbox, domain)?;
        let http = HttpRequests::new(outbox).with_max_bytes(max_bytes);
        Ok(Self { outbox: outbox.clone(), http })
    }

    /// Why something could never be emitted.
    pub(crate) fn check(&self, events: &[Emit], calls: &[HttpRequest]) -> Result<(), String> {
        for (at, Emit { topic, key, payload }) in events.iter().enumerate() {
            if [http::TOPIC, UPDATES].contains(&&**topic) {
                return Err(format!("event {at}: the topic {topic} is kept for us"));
            }
            let checked = self.outbox.check(topic, key, payload);
            checked.map_err(|error| format!("event {at}: {error}"))?;
        }
        for (at, call) in calls.iter().enumerate() {
            self.http.check(call).map_err(|error| format!("HTTP request {at}: {error}"))?;
        }
        Ok(())
    }

    /// Emits in the transaction of a request.
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
