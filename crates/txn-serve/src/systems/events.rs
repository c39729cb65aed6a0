//! Events in transactions of clients, and the outbox for operators.

use hyper::StatusCode;
use serde_json::json;
use txn_core::Transaction;
use txn_outbox::{Outbox, OutboxError};
use txn_requests::Emit;

use super::opened::System;
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::operator::answers::take_limit;
use crate::operator::{backlog_json, dead_letters_json};

/// The validated events of a commit, and their outbox. `None` without events.
#[derive(Debug)]
pub(crate) struct Events(Option<(Outbox, Vec<Emit>)>);

impl Events {
    /// Checks the rights and the contents of events. The first event opens the outbox.
    pub(crate) async fn prepare(
        backend: &Backend,
        asked: &Asked,
        events: Vec<Emit>,
    ) -> Result<Self, Problem> {
        if events.is_empty() {
            return Ok(Self(None));
        }
        for event in &events {
            asked.caller.need(Verb::Emit, &event.topic)?;
            if event.has_reserved_topic() {
                let detail = format!("the topic {} is reserved", event.topic);
                return Err(Problem::new(Code::Invalid, detail));
            }
        }
        let outbox = backend.systems.outbox().await?;
        for (number, event) in events.iter().enumerate() {
            let checked = outbox.check(&event.topic, &event.key, &event.payload);
            checked.map_err(|error| Problem::from(error).within(&format!("event {number}")))?;
        }
        Ok(Self(Some((outbox.clone(), events))))
    }

    /// Emits the events in a transaction. Returns their ids.
    pub(crate) async fn emit(&self, tx: &Transaction) -> Result<Vec<String>, OutboxError> {
        let Some((outbox, events)) = &self.0 else { return Ok(Vec::new()) };
        let mut ids = Vec::with_capacity(events.len());
        for Emit { topic, key, payload } in events {
            ids.push(outbox.emit(tx, topic, key, payload).await?);
        }
        Ok(ids)
    }
}

/// Counts the waiting events, as `txn outbox` prints them.
pub(crate) async fn backlog(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.caller.need_any(&[Verb::Operate])?;
    asked.finish_parameters()?;
    backend.systems.need(System::Outbox).await?;
    let backlog = backend.systems.outbox().await?.source().backlog().await?;
    let now_ms = backend.domain.admin().overview().await?.now_ms;
    Ok(Reply::json(StatusCode::OK, &backlog_json(&backlog, now_ms)))
}

/// Lists the dead letters without their payloads, as `txn dead list` prints them.
pub(crate) async fn dead_letters(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.caller.need_any(&[Verb::Operate])?;
    let limit = take_limit(asked)?;
    let topic = asked.parameters.take("topic");
    asked.finish_parameters()?;
    backend.systems.need(System::Outbox).await?;
    let mut dead = backend.systems.outbox().await?.source().dead_letters().await?;
    dead.retain_topic(topic.as_deref());
    Ok(Reply::json(StatusCode::OK, &dead_letters_json(&dead, limit)))
}

/// The end of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Retry,
    Drop,
}

/// Retries or drops one dead letter. The caller needs the right to emit events of its topic.
pub(crate) async fn end_dead_letter(
    backend: &Backend,
    asked: &mut Asked,
    ending: Ending,
) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    asked.caller.need_any(&[Verb::Operate])?;
    let id = asked.route.value(0).to_owned();
    let Some((topic, _)) = id.split_once('/') else {
        return Err(Problem::new(Code::Invalid, "the id of an event begins with its topic"));
    };
    asked.caller.need(Verb::Emit, topic)?;
    backend.systems.need(System::Outbox).await?;
    let source = backend.systems.outbox().await?.source();
    let action = match ending {
        Ending::Retry => source.retry(&id).await.map(|()| "retried"),
        Ending::Drop => source.discard(&id).await.map(|()| "dropped"),
    };
    Ok(Reply::json(StatusCode::OK, &json!({ "id": id, "action": action? })))
}
